"""Proof that programs can compute: CUDA is run on each GPU and MIG device, as an ordinary user; and nothing that is set
for everybody hides GPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpuprov.capabilities.answers import environment_outcome
from gpuprov.capabilities.base import Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.computing import OBSTACLES, judge_runs
from gpuprov.capabilities.health.fragment import HERE, Ctx
from gpuprov.capabilities.health.reported import describe_gpus, shown
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.gpus.cuda_runs import CUDA_RUNS
from gpuprov.facts.probes.gpus.device_files import DEVICE_FILES
from gpuprov.facts.probes.gpus.gpu_health import GPU_HEALTH
from gpuprov.facts.probes.host.environment import ENVIRONMENT
from gpuprov.hardware import environment
from gpuprov.spec.model import HostSpec


def ask_user(host: HostSpec) -> dict[str, str]:
    block = host.capabilities.get(HERE)
    return {"cuda_user": getattr(block, "cuda_user", None) or ""}


RUNS = replace(CUDA_RUNS, asks=ask_user)


@check("health.cuda", RUNS, fields=("cuda_user",))
def cuda(ctx: Ctx) -> Outcome:
    """A program of an ordinary user can compute on every GPU and MIG device: libcuda starts, memory is had, and what
    was copied there comes back. A device that somebody holds exclusively, or that has no memory left, is not proven."""
    user = ctx.fragment.cuda_user
    if not user:
        return not_asked("no user is named in health.cuda_user")
    seen = ctx.facts.get(RUNS)
    if seen.missing:
        return skip("the host has no Python that could call libcuda", "install python3")
    if seen.obstacle == "off":
        return skip("CUDA was not run when this record was made", "gpuprov verify or health on the host itself")
    if seen.obstacle:
        words, fix = OBSTACLES[seen.obstacle]
        return fail(f"CUDA runs on each device as {user}", words.format(seen.text), fix)
    return judge_runs(seen.runs, f"as {user}")


@check("health.compute_mode", GPU_HEALTH, evidence="nvidia-smi --query-gpu=pci.bus_id,compute_mode --format=csv")
def compute_mode(ctx: Ctx) -> Outcome:
    """No GPU is in compute mode Prohibited, in which no program may compute on it, unless the spec asks for it."""
    block: Any = ctx.host.capabilities.get("gpu_settings")
    if block is not None and any(entry.compute_mode == "prohibited" for entry in (block, *block.per_gpu)):
        return not_asked("gpu_settings asks for prohibited")
    gpus, expected = shown(ctx), "compute modes in which programs can compute"
    if bad := [(gpu, "is in mode Prohibited") for gpu in gpus if gpu.prohibited]:
        return fail(expected, describe_gpus(bad), "nvidia-smi -c 0")
    return ok(expected) if gpus else not_asked("no GPU is shown")


@check("health.device_files", DEVICE_FILES)
def device_files(ctx: Ctx) -> Outcome:
    """Others than root may open the device files of GPUs: everybody, or a group, as NVreg_DeviceFileMode says."""
    files = ctx.facts.get(DEVICE_FILES)
    if not files:
        return not_asked("no GPU has a device file yet: the driver creates them on first use")
    expected = "device files of GPUs that users may open"
    if closed := [each for each in files if not each.mode & 0o066]:
        modes = f"{' '.join(each.path for each in closed)}: mode {closed[0].mode:04o} ({closed[0].owner}), root's alone"
        causes = "grep -rE 'NVreg_DeviceFile|nvidia' /etc/modprobe.d /etc/udev/rules.d"
        return fail(expected, modes, f"chmod 0666 {' '.join(each.path for each in closed)}; {causes}")
    groups = dict.fromkeys(each.owner for each in files if each.mode & 0o006 != 0o006)
    return ok(f"{counted(len(files), 'file')}" + (f", of {', '.join(groups)} alone" if groups else ""), expected)


@check("health.environment", *environment.PROBES, evidence=ENVIRONMENT.evidence)
def variables(ctx: Ctx) -> Outcome:
    """No variable that is set for everybody hides GPUs from programs, or gives them another libcuda than the
    driver's."""
    return environment_outcome(ctx)


CHECKS = (cuda, compute_mode, device_files, variables)
