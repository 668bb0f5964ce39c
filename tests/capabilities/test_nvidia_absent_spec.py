"""nvidia_absent: what contradicts it in a spec, and what is not asked beside it."""

from __future__ import annotations

from typing import Any

from gpuprov.capabilities import BY_NAME
from gpuprov.capabilities.health import watched
from gpuprov.capabilities.health.fragment import FirmwareVersions, Health
from gpuprov.capabilities.nvidia_absent.fragment import NvidiaAbsent
from gpuprov.facts.probes.base import Output
from gpuprov.fleet.specs import judge as judge_fleet
from gpuprov.spec.model import RawHost
from gpuprov.spec.problem import SpecError
from gpuprov.verify.evaluate import evaluate
from gpuprov.verify.fitness import fitness
from tests.capabilities import contexts
from tests.capabilities.asking import facts, good
from tests.rows import run_each

BLOCK = NvidiaAbsent()


def judge_spec(values: dict[str, Any]) -> list[str]:
    """What check says of a host with this spec."""
    try:
        return [str(problem) for problem in judge_fleet([RawHost(name="gpu01", values=values)]).warnings]
    except SpecError as error:
        return [str(problem) for problem in error.problems]


REFUSED = [
    "nvidia_driver", "persistence", "cuda_toolkit", "fabric_manager", "gpudirect_rdma", "gds", "topology",
    "container_toolkit",
    "mig", "gpu_settings", "mps", "kubernetes", "slurm", "dcgm", "cgpu", "vgpu_guest",
]  # fmt: skip


@run_each("name", [name for name in BY_NAME if name not in ("host", "nvidia_absent")])
def test_blocks_that_need_the_driver_are_errors(name: str) -> None:
    said = judge_spec({"nvidia_absent": {}, name: {}})
    message = f"{name} needs NVIDIA's driver, and nvidia_absent removes it from this host"
    errors = [problem for problem in said if message in problem]
    assert len(errors) == (name in REFUSED), said
    assert not errors or f"{name}: false for this host, or nvidia_absent: false" in errors[0]


CONTRADICTIONS: list[tuple[dict[str, Any], list[str]]] = [
    ({"kernel": {"modules_load": ["ext4", "nvidia-uvm", "nvidia"]}}, ["kernel.modules_load names nvidia, nvidia-uvm"]),
    ({"kernel": {"module_options": {"nvidia-current": {"NVreg_x": 1}}}},
     ["kernel.module_options names nvidia-current"]),
    ({"kernel": {"modules_built": ["gdrdrv", "lustre"]}}, ["kernel.modules_built names gdrdrv"]),
    ({"kernel": {"command_line": {"nvidia-drm.modeset": "1"}}}, ["kernel.command_line names nvidia-drm"]),
    ({"kernel": {"modules_load": ["nvidiafb"], "blacklist": ["nvidia"], "command_line": {"nvidia": ""}}}, []),
    ({"health": {"cuda_user": "nobody", "ecc": "enabled"}}, ["health.cuda_user needs NVIDIA",
                                                             "health.ecc needs NVIDIA"]),
    ({"health": {"ecc": "any", "cuda_user": None}}, []),
    ({"acceptance": {}}, ["acceptance.nccl.test needs NVIDIA", "acceptance.nvbandwidth.tests needs NVIDIA"]),
    ({"acceptance": {"nccl": {"test": "none"}, "nvbandwidth": {"tests": []}}}, []),
]  # fmt: skip


@run_each(("blocks", "problems"), CONTRADICTIONS)
def test_what_needs_the_driver_in_blocks_that_may_stay(blocks: dict[str, Any], problems: list[str]) -> None:
    said = judge_spec({"nvidia_absent": {}, **blocks})
    assert len(said) == len(problems), said
    assert all(words in text and "or nvidia_absent: false" in text for words, text in zip(problems, said, strict=True))
    assert not problems or not [text for text in judge_spec(blocks) if "nvidia_absent" in text]


@run_each(
    ("spec", "fit"),
    [
        ({}, "no"),
        ({"nvidia_absent": BLOCK}, "yes"),
        ({"nvidia_absent": BLOCK, "health": Health(firmware="fleet")}, "yes"),
        ({"nvidia_absent": BLOCK, "health": Health(firmware_versions=FirmwareVersions(vbios={"H100": "96"}))}, "yes"),
    ],
)
def test_health_asks_nothing_of_gpus_whose_driver_is_removed(spec: dict[str, Any], fit: str) -> None:
    known = facts(**{**good(), "gpu_health": Output("@present 1\n@smi\n", 127), "nvlink_errors": Output("", 127)})
    results = evaluate(watched(contexts.spec(**spec)), known, only={"health"})
    assert [each.fit for each in fitness(results)] == [fit]
    asked = {each.check.partition(".")[2]: each.status for each in results if each.capability == "health"}
    assert {asked[name] for name in ("kernel_log", "xid", "pcie_errors", "pcie_links", "kernel")} == {"pass"}
    assert fit == "no" or {asked[name] for name in ("gpus", "ecc_mode", "nvlinks", "fabric", "cuda")} == {"n/a"}


def test_switched_off_they_are_none() -> None:
    assert judge_spec({"nvidia_absent": {}, "nvidia_driver": False, "mps": False}) == []
