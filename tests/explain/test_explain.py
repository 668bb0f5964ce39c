"""Each word that gpuprov uses is explained; a word it does not know gets its neighbours."""

from __future__ import annotations

import re

import pytest
from msgspec import inspect as shape

from gpuprov.capabilities import BY_NAME
from gpuprov.capabilities.health.log import judge
from gpuprov.catalog.lists import index_lists
from gpuprov.catalog.lookup import find_symptom
from gpuprov.catalog.rdma.gpudirect import Message, find_message, read_gpudirect_file
from gpuprov.catalog.symptoms import list_symptoms
from gpuprov.core.errors import EXIT_CODES, GpuprovError
from gpuprov.explain import Explanation, _symptom, explain, fields, in_stream, in_text
from gpuprov.explain.messages import symptoms_in
from gpuprov.facts.probes.kernel.kernel_log import Event
from tests.explain.test_threads import THREADS
from tests.rows import run_each


def only(kind: str, words: str) -> Explanation:
    (found,) = [answer for answer in explain(words) if answer.kind == kind]
    return found


@run_each("name", list(BY_NAME))
def test_capabilities(name: str) -> None:
    answer = only("capability", name)
    lines = dict(answer.lines)
    assert lines["does"] == BY_NAME[name].summary
    for field in fields.fields(name):
        if len(field.path) == 2:
            assert lines[f"field {field.path[1]}"], "a field without prose"
    for check in BY_NAME[name].checks:
        assert lines[f"check {check.id}"] == check.description


@run_each("name", list(BY_NAME))
def test_fields(name: str) -> None:
    for field in fields.fields(name):
        answer = only("field", ".".join(field.path))
        lines = dict(answer.lines)
        assert lines["does"], f"{field.name}: no prose"
        assert lines["allowed"], field.name
        assert not re.search(r"Type|AnyType|(^|[:;]) ?,", lines["allowed"]), field.name
        assert lines["default"], field.name
        assert lines["proved by"], f"{field.name}: neither proved nor excused"
        assert answer in explain(field.path[-1]), f"{field.name} is found by its last name alone too"
        assert answer in explain(field.name), f"{field.name} is found as it is shown"


def paths(kind: shape.Type) -> set[tuple[str, ...]]:
    """Every field of a block and of the blocks inside it, through lists, choices and descriptions."""
    below = [getattr(kind, name, None) for name in ("type", "item_type", "value_type")]
    found = {
        path for one in (*below, *getattr(kind, "types", ())) if isinstance(one, shape.Type) for path in paths(one)
    }
    for field in kind.fields if isinstance(kind, shape.StructType) else ():
        found |= {(field.encode_name,), *((field.encode_name, *path) for path in paths(field.type))}
    return found


@run_each("name", list(BY_NAME))
def test_no_field_of_the_model_is_left_out(name: str) -> None:
    assert {field.path[1:] for field in fields.fields(name)} == paths(shape.type_info(BY_NAME[name].fragment))


PROVE_ROCE = "rdma.roce_settings, rdma.roce_alone, rdma.roce_ways, rdma.files, rdma.enabled, rdma.active"


@run_each(
    ("words", "name", "told"),
    [
        ("rdma.roce.pfc", "rdma.roce.pfc", {"allowed": "a list: 0, 1, 2, 3, 4, 5, 6, 7, none", "default": "[]"}),
        ("pfc", "rdma.roce.pfc", {"proved by": PROVE_ROCE}),
        ("roce.pfc", "rdma.roce.pfc", {}),
        ("rdma.devices[0].pci", "rdma.devices[].pci", {"allowed": "text", "default": '""'}),
        ("rdma.erdma.mtu", "rdma.erdma.mtu", {"allowed": '"", jumbo, standard'}),
        ("mig.layout.gpus", "mig.layout[].gpus", {"default": "none: required"}),
        ("gpu.count", "host.gpu.count", {"allowed": "a whole number from 1 to 64", "default": "null"}),
        ("dscp2prio", "rdma.roce.dscp2prio", {"default": "{}"}),
        ("rdma.roce", "rdma.roce", {"default": "{}"}),
        ("acceptance.rdma.bandwidth", "acceptance.rdma.bandwidth", {"allowed": "a number", "default": "0.0"}),
    ],
)  # fmt: skip
def test_a_field_of_a_block_inside_a_block(words: str, name: str, told: dict[str, str]) -> None:
    answer = only("field", words)
    assert answer.name == name
    assert dict(answer.lines) | told == dict(answer.lines)


def test_a_field_of_a_block_is_proved_by_the_checks_of_the_block() -> None:
    inner, outer = (dict(only("field", words).lines) for words in ("rdma.roce.pfc", "rdma.roce"))
    assert inner["proved by"] == outer["proved by"] == PROVE_ROCE
    assert outer["about"].startswith("Settings of RoCE ports.")


def test_a_name_that_several_blocks_have_gets_all_answers_the_least_deep_first() -> None:
    names = [answer.name for answer in explain("nccl") if answer.kind == "field"]
    assert names == ["rdma.nccl", "cuda_toolkit.nccl", "acceptance.nccl"]
    names = [answer.name for answer in explain("version") if answer.kind == "field"]
    assert names[-1] == "rdma.ofed.version"
    assert "nvidia_driver.version" in names[:-1]


@run_each("name", list(BY_NAME))
def test_checks(name: str) -> None:
    for check in BY_NAME[name].checks:
        lines = dict(only("check", check.id).lines)
        assert lines["asks"].endswith((".", ".)")), check.id
        assert lines["when"] in ("preflight", "now", "next-boot"), check.id
        assert lines["see it"], f"{check.id}: no command to see it oneself"


@pytest.mark.parametrize("code", list(EXIT_CODES))
@pytest.mark.parametrize("words", ["{}", "exit {}", "exit code {}", "Exit {}"])
def test_exit_codes(code: int, words: str) -> None:
    assert dict(only("exit code", words.format(code)).lines)["means"] == EXIT_CODES[code]


def test_a_cause_that_is_inferred_says_so() -> None:
    known = list_symptoms()
    marked = {one.key: dict(_symptom(one).lines).get("certainty", "") for one in known}
    assert {one.confidence for one in known} >= {"confirmed", "inferred"}
    for one in known:
        assert marked[one.key].startswith("" if one.confidence == "confirmed" else f"{one.confidence}: "), one.key
        assert bool(marked[one.key]) is (one.confidence != "confirmed"), one.key


@run_each(
    ("words", "cause"),
    [
        ("802", "NVSwitch fabric"),
        ("Driver/library version mismatch", "User space was upgraded"),
        (
            "Failed to initialize NVML: Driver/library version mismatch NVML library version: 535.261",
            "User space was upgraded",
        ),
        ("unsatisfied condition: cuda", "newer CUDA"),
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid=0, GPU has fallen off the bus.", ""),
    ],
)
def test_symptoms(words: str, cause: str) -> None:
    found = [answer for answer in explain(words) if answer.kind == "symptom"]
    assert found
    lines = dict(found[0].lines)
    assert cause in lines["cause"]
    assert lines["check"]
    assert lines["fix"]


@run_each(
    ("words", "causes"),
    [
        ("Unknown symbol ib_register_peer_memory_client", ["has no peer memory", "against another OFED"]),
        ("nv_peer_mem: Unknown symbol ib_register_peer_memory_client", ["has no peer memory"]),
        ("nv_peer_mem: Unknown symbol ib_register_peer_memory_client (err 0)", ["has no peer memory"]),
        ("nvidia_peermem: Unknown symbol ib_unregister_peer_memory_client (err -2)", ["has no peer memory"]),
        ("nvidia_peermem: Unknown symbol ib_register_peer_memory_client (err -22)", ["against another OFED"]),
        ("disagrees about version of symbol ib_register_peer_memory_client", ["against another OFED"]),
        ("invalid peerdirect_support param value", ["a value that the module does not know"]),
        ("error while registering", ["ib_core refuses the client"]),
        ("nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping", ["had lost"]),
    ],
)
def test_what_the_kernel_says_of_peer_memory_means_what_verify_says(words: str, causes: list[str]) -> None:
    found = [dict(answer.lines) for answer in explain(words) if answer.kind == "symptom"]
    assert len(found) == len(causes), found
    known = {(one.cause, one.way) for one in (*read_gpudirect_file().messages, read_gpudirect_file().bad_context)}
    for lines, cause in zip(found, causes, strict=True):
        assert cause in lines["cause"]
        assert (lines["cause"], lines["fix"]) in known
        assert lines["check"]


@run_each("message", read_gpudirect_file().messages, ids=lambda message: message.key)
def test_explain_and_verify_find_the_same_message_in_a_log_line(message: Message) -> None:
    for signature in message.signatures:
        line = f"[   12.345678] nvidia_peermem: {signature}"
        assert find_message((line,)) == message
        assert [answer.name for answer in explain(line)] == [" | ".join(message.signatures)]


@run_each(
    ("pasted", "cause"),
    [
        ("RuntimeError: CUDA error: system not yet initialized", "NVSwitch fabric"),
        ("NVRM: API mismatch: the client has the version 535.54.03, but", "User space was upgraded"),
        ("CUDA driver version is insufficient for CUDA runtime version", "newer CUDA than the driver"),
        ("nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown", "is not loaded"),
        ("bash: nvidia-smi: command not found", "programs are not installed"),
        ("ERROR: Unable to find the kernel source tree for the currently running kernel.", "headers of this kernel"),
        ("NVRM: GPU 0000:07:00.0: RmInitAdapter failed! (0x61:0x56:1770)", "could not start the GPU"),
        ("NVRM: GPU 0000:07:00.0: RmInitAdapter failed! (0x62:0x1a:1770)", "Proprietary kernel modules on Blackwell"),
        ("NCCL WARN NET/IB : Got completion from peer 10.0.0.1<54862> with status=12 opcode=0", "did not answer"),
        ("NCCL WARN Bootstrap : no socket interface found", "no IP interface"),
        ("torch.distributed.DistBackendError: ncclSystemError: System call (e.g. socket, malloc) failed", "WARN line"),
        ("NVRM: Xid (PCI:0000:3b:00): 110, pid=0", "security fault"),
        ("an Xid 41", "copy engine"),
    ],
)
def test_what_people_paste(pasted: str, cause: str) -> None:
    first = next(answer for answer in explain(pasted) if answer.kind == "symptom")
    assert cause in dict(first.lines)["cause"]


@run_each(
    ("number", "action"),
    [
        (79, "RESTART_BM: restart the host"),
        (119, "RESET_GPU: reset the GPU"),
        (11, "RESTART_APP: restart the program"),
        (167, ""),
    ],
)
def test_an_xid_is_told_with_nvidias_action(number: int, action: str) -> None:
    """The same that `gpuprov health` goes by."""
    first = next(answer for answer in explain(f"Xid {number}") if answer.kind == "symptom")
    assert dict(first.lines).get("NVIDIA says", "") == action


def test_every_xid_that_nvidia_gives_an_action_for_is_known() -> None:
    """The numbers of NVIDIA's Xid catalogue that are in use on A100 or newer."""
    used = {
        8,
        13,
        14,
        25,
        31,
        32,
        *range(37, 42),
        43,
        44,
        45,
        46,
        48,
        54,
        60,
        62,
        63,
        64,
        *range(66, 73),
        *range(74, 81),
    }
    used |= {*range(82, 87), 88, 89, *range(92, 111), 119, 120, 121, *range(126, 138), *range(139, 173)}
    known = {number for symptom in list_symptoms() for number in symptom.xids}
    assert sorted(used - known) == []
    for number in range(1, 173):
        found = [
            answer for answer in explain(f"NVRM: Xid (PCI:0000:3b:00): {number}, pid=0") if answer.kind == "symptom"
        ]
        assert len(found) == 1, f"Xid {number}"


@pytest.mark.parametrize("words", ["{}", "Xid {}", "NVRM: Xid (PCI:0000:52:00): {}, SPARING_EVENT"])
@pytest.mark.parametrize("number", [173, 184, 185, 186, 199])
def test_an_xid_that_the_catalogue_is_too_old_for(number: int, words: str) -> None:
    """What is to be done then is the driver's own to say; of 185 NVIDIA's notes on R620 say what it is."""
    lines = dict(explain(words.format(number))[0].lines)
    assert ("SPARING_EVENT" if number == 185 else "newer than NVIDIA's Xid catalogue of 2025-10-29") in lines["cause"]
    assert "Xid 154" in lines["fix"]
    assert "GPU Recovery Action" in lines["fix"]
    assert "NVIDIA says" not in lines


@pytest.mark.parametrize("step", [40, pytest.param(1, marks=pytest.mark.install)])
def test_every_symptom_is_found_by_its_own_words(step: int) -> None:
    for symptom in list_symptoms()[::step]:
        first, *others = symptom.signatures
        shown = (
            index_lists()[symptom.key].narrow(first).signatures if symptom.key in index_lists() else symptom.signatures
        )
        assert " | ".join(shown) in [answer.name for answer in explain(first)], first
        for signature in others:
            found = (*find_symptom(signature), *(seen.symptom for seen in symptoms_in(signature)))
            assert symptom.key in {one.key for one in found}, signature


def test_a_field_is_found_in_capitals() -> None:
    assert [answer.name for answer in explain("ACS")] == [answer.name for answer in explain("acs")] == ["pcie.acs"]


@run_each(
    ("words", "fix"),
    [
        ("kernl", "did you mean kernel, rdma.kernel, kernel.files"),
        ("nvidia_driver.versio", "did you mean nvidia_driver.version,"),
        ("persistance", "did you mean persistence"),
        ("", "capabilities: host, kernel, nouveau, rdma, nvidia_absent, passthrough, nvidia_driver"),
        ("qqqq", "capabilities: host, kernel"),
        ("nosuchword", "capabilities: host, kernel"),
        ("a message of another program", "paste the whole message as it was printed"),
        # Its words are all in another message, of containers: https://github.com/NVIDIA/dcgm-exporter/issues/46
        ("Error: Failed to initialize NVML", "paste the whole message as it was printed"),
        ("Error: nvml: Unknown Error", "paste the whole message as it was printed"),
        # Three words of "Failed to start NVIDIA Persistence Daemon" are a part of it; with a colon, or four, none are.
        ("daemon: persistence failed", "paste the whole message as it was printed"),
        ("daemon persistence start failed", "paste the whole message as it was printed"),
    ],
)
def test_unknown_words(words: str, fix: str) -> None:
    with pytest.raises(GpuprovError) as caught:
        explain(words)
    assert caught.value.message == f'nothing is known of "{words}"'
    assert caught.value.fix.startswith(fix)
    named = caught.value.fix.removeprefix("did you mean ").removesuffix("?").split(", ")
    assert len(named) == len(set(named))
    assert caught.value.exit_code == 2


ONE_WORD = sorted(
    {said for symptom in list_symptoms() for said in symptom.signatures if re.fullmatch(r"[\w./-]+", said)} - {"SXid"}
)


NEEDED = {
    text: one.words[0] for symptom in list_symptoms() for one in symptom.needs for text in one.of or symptom.signatures
}


@pytest.mark.parametrize("step", [10, pytest.param(1, marks=pytest.mark.install)])
def test_a_message_of_one_word_is_found_in_a_line_and_in_a_log(step: int) -> None:
    for word in ONE_WORD[::step]:
        line = f"RuntimeError: {word} at 0x7f3a {NEEDED.get(word, '')}".strip()
        names = [one.name for one in in_text(f"start\n{line}\nend\n", "a log")]
        assert [one.name for one in explain(line)] == names, word


@run_each("word", ["XncclSystemError", "ncclSystemErrors", "FI_EFA_FORK_SAFE=1", "export FI_EFA_FORK_SAFE=1"])
def test_a_part_of_a_word_and_a_setting_are_no_message(word: str) -> None:
    with pytest.raises(GpuprovError):
        explain(f"worker 3: {word}")
    with pytest.raises(GpuprovError):
        in_text(f"worker 3: {word}", "a log")


def test_a_line_has_the_same_causes_by_itself_and_in_a_log() -> None:
    """Where a log holds a message, whoever pastes its line is told of it, too."""
    for thread in sorted({one.line for one in THREADS if "xid" not in one.line.casefold()}):
        line = " ".join(thread.split())
        assert {one.name for one in in_text(line, "a log")} <= {one.name for one in explain(line)}, line


@run_each(
    "words",
    [
        "Authorization: Bearer {}",
        "docker run -e HF_TOKEN={} --gpus all",
        "docker run -e AWS_SECRET_ACCESS_KEY={}",
        "password: {}",
        "curl https://user:{}@example.org/",
    ],
)
def test_what_is_shown_again_of_a_log_has_no_secrets(words: str) -> None:
    """By the same rule as what is written into records."""
    secret, said = words.format("hunter2"), "CUDA out of memory"
    seen = dict(in_text(f"{secret}: {said}", "a log")[0].lines)["seen"]
    assert said in seen
    assert "hunter2" not in seen
    pair = f"nvidia-smi: No devices found {secret}\n{secret} requires use of the NVIDIA open kernel modules"
    assert "hunter2" not in repr(in_text(pair, "a log")) + repr(explain(pair))
    with pytest.raises(GpuprovError) as caught:
        explain(f"nobody knows {secret}")
    assert "hunter2" not in caught.value.message


def test_a_number_of_an_xid_that_no_driver_prints_is_unknown() -> None:
    with pytest.raises(GpuprovError, match="nothing is known of"):
        explain(f"Xid {'9' * 5000}")


def test_a_standard_input_that_is_closed_is_told() -> None:
    with pytest.raises(GpuprovError, match="standard input cannot be read: it is closed"):
        in_stream(None)


FATAL, QUIET = "NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x026001c6 0x0)", "NETIR_BER_EVENT Nonfatal XC0 i0 Link 03"
NVLINK5 = [
    (
        FATAL,
        "IGNORE: nothing is to be done; INVESTIGATE_SW_USER: software or a person took the link down: look for what did",
    ),
    (QUIET, "IGNORE: nothing is to be done"),
    (
        "NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 0x00000000)",
        "RESET_GPU: reset the GPU; "
        "INVESTIGATE_PEER_DEVICE: it began at the other end of the link: look at the GPU or NVSwitch there",
    ),
]


@run_each(("said", "asks"), NVLINK5)
def test_line_of_nvlink5_says_itself_what_it_asks_for(said: str, asks: str) -> None:
    """As an argument, piped, and in a record; and nothing else stands beside it."""
    line = f"NVRM: Xid (PCI:0000:00:00): 149, {said}"
    for (answer,) in (explain(line), in_text(f"start\n[171167.620236] {line}\nend\n", "a log")):
        lines = dict(answer.lines)
        assert lines["NVIDIA says"] == asks
        assert lines["fix"] == "; ".join(part.partition(": ")[2] for part in asks.split("; "))
        assert "workflow" not in repr(answer)
    judged = judge(Event(device="0000:00:00", number=149, count=1, at=0.0, text=said))
    assert judged.verdict.words == "; ".join(part.replace(": ", ", ", 1) for part in asks.split("; "))


def test_lines_of_one_xid_that_ask_for_different_things_are_told_apart() -> None:
    log = "\n".join(f"NVRM: Xid (PCI:0000:00:00): 149, {said}" for said, _ in NVLINK5)
    answers = [dict(one.lines) for one in in_text(log, "a log")]
    assert [one["NVIDIA says"].partition(":")[0] for one in answers] == ["RESET_GPU", "IGNORE", "IGNORE"]
    assert [one["seen"].partition(" in ")[0] for one in answers] == ["1 time", "1 time", "1 time"]


def test_of_xids_the_gravest_comes_first() -> None:
    log = "\n".join(
        f"NVRM: Xid (PCI:0000:0{number % 7}:00): {number}, pid=9, name=a" for number in (43, 13, 63, 48, 79)
    )
    assert [one.name for one in in_text(log, "a log")] == ["Xid 79", "Xid 48", "Xid 13", "Xid 43", "Xid 63"]


def test_a_long_unknown_word_is_not_repeated_whole() -> None:
    with pytest.raises(GpuprovError) as caught:
        explain("z" * 100_000)
    assert len(str(caught.value)) < 1000
