"""The published figures of explain do not fall, and the corpus is what it says it is."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from gpuprov.catalog.context import fold
from gpuprov.catalog.signatures import MANY, find_held
from gpuprov.catalog.symptoms import list_symptoms
from gpuprov.explain import explain
from gpuprov.explain.messages import symptoms_in
from tests.explain.corpus import Line, lines, may_be_held_out
from tests.explain.measure import PARTS, judge, summarize
from tests.rows import run_each

WRITTEN, ASIDE, FRESH, THIN, NEWEST, KINDS, SOURCES, FIRST, LATEST, FAMILIES, FORUMS, UNCOMMON, HOSTS, BUILDS = (
    PARTS.values()
)
LIMITS = Path(__file__).parents[2] / "docs/explanation/limits.md"


def verdicts(those: list[Line], *, piped: bool = False) -> Counter[str]:
    return Counter(judge(line, piped=piped)[0] for line in those)


def test_the_corpus_is_large_and_half_of_it_is_set_aside_by_the_rule() -> None:
    assert len(lines()) >= 900
    assert len(ASIDE) >= 200
    assert all(may_be_held_out(line.line) for line in ASIDE)
    assert {line.layer for line in lines()} == {
        "driver_kernel", "packages_builds", "containers", "kubernetes", "nccl_mpi", "cuda_pytorch", "rdma_fabric",
        "efa", "erdma",
        "mnnvl_imex", "vgpu", "mig_mps", "slurm", "dcgm", "cgpu",
    }  # fmt: skip


def test_each_line_stands_once_with_its_address() -> None:
    assert [line for line, count in Counter(one.line for one in lines()).items() if count > 1] == []
    assert [one.line for one in lines() if not one.source.startswith("https://") or " " in one.source] == []


def test_lines_by_which_the_catalogue_is_written_have_answers_that_it_has() -> None:
    known = {symptom.key for symptom in list_symptoms()}
    assert [(line.line, line.answer) for line in WRITTEN if not known & set(line.answer)] == []


@run_each("piped", [False, True])
def test_the_figure_of_those_set_aside(piped: bool) -> None:
    found = verdicts(ASIDE, piped=piped)
    assert found["right"] / len(ASIDE) >= 0.94
    assert found["wrong"] / len(ASIDE) <= 0.01


@run_each(
    ("those", "right", "wrong"),
    [
        (FRESH, 0.83, 0.012),
        (THIN, 0.66, 0.0),
        (NEWEST, 0.60, 0.019),
        (KINDS, 0.73, 0.0),
        (SOURCES, 0.73, 0.112),
        (FIRST, 0.60, 0.072),
        (LATEST, 0.64, 0.09),
        (FAMILIES, 0.62, 0.108),
        (FORUMS, 0.75, 0.0),
        (UNCOMMON, 0.41, 0.0),
        (HOSTS, 0.60, 0.032),
        (BUILDS, 0.7, 0.027),
    ],
    ids="fresh thin newest kinds sources first latest families forums uncommon hosts builds".split(),
)
def test_the_figure_of_those_that_nobody_who_wrote_had_read(those: list[Line], right: float, wrong: float) -> None:
    found = verdicts(those)
    assert len(those) >= 14
    assert found["right"] / len(those) >= right
    assert found["wrong"] / len(those) <= wrong


def test_the_published_figure_is_the_measured_one() -> None:
    published = " ".join(LIMITS.read_text(encoding="utf-8").split())
    assert summarize(line for line in lines() if line.fresh) in published, "python -m tests.explain.measure --summary"


def test_of_a_line_with_two_messages_the_specific_one_is_answered() -> None:
    """A row that collects a whole kind of messages comes after one of few, however long its message is."""
    line = "error getting list of preferred allocation devices: error calling nvml.Init: Unknown Error"
    rows = [held.symptom for held in find_held(fold(line))]
    assert [row.key for row in rows] == ["kubernetes-nvml", "kubernetes-allocate-failed"]
    assert len(rows[0].signatures) <= MANY < len(rows[1].signatures)


def test_a_message_that_names_what_another_leaves_open_is_answered() -> None:
    line = "modprobe: FATAL: Module nvidia-uvm not found in directory /lib/modules/6.8.0-31-generic"
    rows = find_held(fold(line))
    assert [row.symptom.key for row in rows] == ["uvm-not-loaded"]
    other = find_held(fold(line.replace("nvidia-uvm", "nvidia-fs")))
    assert [(row.symptom.key, "*" in row.signature.text) for row in other] == [("module-not-found", True)]


@run_each(
    ("line", "key"),
    [
        ("RuntimeError: CUDA driver error: 209", "cuda-no-kernel-image"),
        ("kernel.cu:12 code=700(cudaErrorIllegalAddress) cudaDeviceSynchronize()", "cuda-illegal-address"),
        ("cupy: cudaErrorInsufficientDriver", "cuda-driver-insufficient"),
        ("GPUassert: invalid device ordinal kernel.cu 12", "cuda-invalid-ordinal"),
        ("RuntimeError: Triton Error [CUDA]: out of memory", "cuda-out-of-memory"),
        ("CUDA failure 7: context is destroyed", "cuda-program-error"),
    ],
)
def test_an_error_of_cuda_is_known_in_the_words_of_any_program(line: str, key: str) -> None:
    assert find_held(fold(line))[0].symptom.key == key


@run_each(
    "line",
    ["app: error 209: out of memory", "Nov 28 10:00:00 gpu01 app: operation not permitted", "cuda 12.4 installed: 2"],
)
def test_a_number_or_text_of_others_is_no_error_of_cuda(line: str) -> None:
    assert find_held(fold(line)) == []


def test_a_message_that_no_row_has_is_answered_by_the_part_of_the_program_that_prints_it() -> None:
    part = "gpu01:12:34 [0] graph/topo.cc:99 NCCL WARN No such thing was ever printed"
    assert [(one.symptom.key, one.by_part) for one in symptoms_in(part)] == [("nccl-topology-search", True)]
    assert "does not know this message" in dict(explain(part)[0].lines)["certainty"]
    known = part.replace("No such thing was ever printed", "Could not find a path for pattern 4, falling back")
    assert [(one.symptom.key, one.by_part) for one in symptoms_in(known)] == [("nccl-topology-search", False)]


def test_lines_that_only_follow_from_others_come_last_in_a_log() -> None:
    lines = (
        "nvidia-fabricmanager.service: Failed with result 'exit-code'.",
        "RuntimeError: Engine core initialization failed",
    )
    log = "\n".join((*lines, "nvcc: command not found"))
    found = [one.symptom.follows for one in symptoms_in(log)]
    assert found[0] is False
    assert found == sorted(found)
    assert any(found)


@run_each(
    ("line", "words"),
    [
        ("[launch.py:322:sigkill_handler] ['/usr/bin/python3'] exits with return code = -9", "killed by signal 9"),
        ("[launch.py:322:sigkill_handler] ['python3', 'worker-9'] exits with return code = 1", "with a Traceback"),
        ("torch.distributed.elastic.multiprocessing.api: failed (exitcode: -11) local_rank: 2", "crashed (signal 11"),
        ("torch.distributed.elastic.multiprocessing.api: failed (exitcode: -119) local_rank: 2", "with a Traceback"),
        ("srun: error: gpu-9: task 3: Bus error", "bus error"),
        (
            "slurmstepd: error: *** STEP 9.0 ON gpu01 CANCELLED AT 2026-11-30T10:00:00 DUE TO TIME LIMIT ***",
            "time limit",
        ),
    ],
)
def test_a_line_decides_which_cause_of_its_message_comes_first(line: str, words: str) -> None:
    lines = dict(explain(line)[0].lines)
    assert words in lines["cause"]
    assert lines["or"]


@run_each(
    ("line", "key"),
    [
        ("failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected", "cuda-no-device"),
        ("failed call to cuInit: CUDA_ERROR_OUT_OF_MEMORY: out of memory", "cuda-out-of-memory"),
        ("failed call to cuInit: UNKNOWN ERROR (303)", "libcuda-missing"),
        ("infiniband efa_0: Failed to create qp [-12]", "efa-driver-command"),
        ("worker 3: recv failed: IBV_WC_RETRY_EXC_ERR", "rdma-retry-exceeded"),
        ("NCCL WARN NET/IB: Got completion from peer 10.0.0.1 with status=IBV_WC_RETRY_EXC_ERR(12)",
         "nccl-completion-error"),
        ('error: _find_node_record: lookup failure for node "gpu-792"', "slurm-state"),
        ("sbatch: error: fetch_config: DNS SRV lookup failed", "slurm-no-configuration"),
    ],
)  # fmt: skip
def test_a_message_is_of_the_program_and_error_that_it_names(line: str, key: str) -> None:
    assert symptoms_in(line)[0].symptom.key == key
