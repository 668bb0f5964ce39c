"""Versions, generations, packages, and gpuprov's own commands and keys."""

from __future__ import annotations

import pytest

from gpuprov.core.errors import GpuprovError
from gpuprov.explain import explain
from tests.rows import run_each

COMMANDS = {"apply": "Bring the hosts to what their specs say.", "mig": "Show which MIG instances fit."}


@run_each(
    ("word", "kind", "name", "line"),
    [
        ("580", "driver branch", "580", ("write", 'nvidia_driver: {version: "580"}')),
        ("R580", "driver branch", "580", ("runs", "CUDA 13.0 and older")),
        ("580.95.05-1ubuntu1", "driver branch", "580", ("see", "gpuprov catalog drivers")),
        ("libnvidia-compute-580", "driver branch", "580", ("see", "gpuprov catalog drivers")),
        ("cuda-drivers-580", "driver branch", "580", ("see", "gpuprov catalog drivers")),
        ("CUDA 12.8", "CUDA version", "12.8", ("see", "gpuprov catalog cuda")),
        ("hopper", "generation of GPUs", "Hopper", ("compute", "capability 9.0")),
        ("sm_90", "GPUs", "compute capability 9.0", ("see", "gpuprov catalog gpus")),
        ("8xL40S", "GPU", "L40S", ("see", "gpuprov catalog gpus L40S")),
        ("gpuprov apply --yes", "command", "gpuprov apply", ("see", "gpuprov apply --help")),
    ],
)
def test_a_word_has_one_answer(word: str, kind: str, name: str, line: tuple[str, str]) -> None:
    (answer,) = explain(word, COMMANDS)
    assert (answer.kind, answer.name) == (kind, name)
    assert line in answer.lines


@run_each(
    ("word", "field"),
    [
        ("NCCL_DEBUG", "rdma.nccl.settings"),
        ("rdma.nccl.settings.NCCL_DEBUG", "rdma.nccl.settings"),
        ("gpuprov.nvidia_driver.version", "nvidia_driver.version"),
    ],
)
def test_a_key_is_explained_by_its_field(word: str, field: str) -> None:
    assert [answer.name for answer in explain(word)] == [field]


def test_a_capability_comes_before_a_command_and_unknown_versions_are_nothing() -> None:
    assert explain("mig", COMMANDS)[0].kind == "capability"
    for word in ("999.99", "CUDA 12.80", "sm_11", "nvidia-driver-999"):
        with pytest.raises(GpuprovError, match="nothing is known"):
            explain(word)
