"""Checks that the host's GPUs support these settings, by their own limits, and whose work they would end, made before
anything is changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpuprov.capabilities.base import Change, Outcome, check, fail, ok, skip
from gpuprov.capabilities.gpu_settings.host import STATE, Asked, Ctx, driverless, list_requests
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.gpus import gpu_settings as probe
from gpuprov.host_code.gpu_settings.plan import format_clocks

Clocks = Mapping[int, Sequence[int]]


@check(
    "gpu_settings.fits",
    *(*STATE, nvidia.DRIVER, probe.CLOCKS),
    fields=("ecc", "power_limit", "application_clocks", "locked_clocks", "compute_mode", "per_gpu"),
    moment="preflight",
    evidence="nvidia-smi -q -d POWER,ECC,SUPPORTED_CLOCKS",
)
def fits(ctx: Ctx) -> Outcome:
    """Every GPU that the spec names is present, supports the requested settings, and allows their values by its own
    limits."""
    if reason := driverless(ctx):
        return skip(reason)
    selection = list_requests(ctx)
    if isinstance(selection, Outcome):
        return selection
    clocks = ctx.facts.get(probe.CLOCKS)
    wrong = [
        f"{gpu.told}: {text}"
        for gpu in selection
        for name, judge in JUDGES.items()
        if name in gpu.settings
        for text in judge(gpu, gpu.settings[name], clocks.get(gpu.now.address, {}))
    ]
    if wrong:
        return fail("settings that these GPUs take", "; ".join(wrong), "correct gpu_settings in the spec")
    return ok(f"what is asked for is supported by {counted(len(selection), 'GPU')}")


def _ecc(gpu: Asked, mode: Any, _clocks: Clocks) -> list[str]:
    return [] if gpu.now.ecc_pending else [f"ecc is {mode}, and it has no ECC mode that can be set"]


def _power(gpu: Asked, limit: Any, _clocks: Clocks) -> list[str]:
    now = gpu.now
    if now.power is None or now.power_least is None or now.power_most is None:
        return [f"power_limit is {limit}, and it has none that can be set"]
    if limit == "default" or now.power_least <= limit <= now.power_most:
        return []
    return [f"power_limit is {limit} W; allowed: {now.power_least:g} to {now.power_most:g} W"]


def _applications(gpu: Asked, asked_clocks: Any, clocks: Clocks) -> list[str]:
    if gpu.now.application_memory is None:
        return [f"it has no application clocks ({gpu.now.applications or 'N/A'}); take locked_clocks in their place"]
    if asked_clocks == "default" or not clocks:
        return []
    memory, graphics = asked_clocks["memory"], asked_clocks["graphics"]
    if memory not in clocks:
        return [f"application_clocks.memory is {memory} MHz; allowed: {format_clocks([*clocks])}"]
    if graphics not in clocks[memory]:
        return [
            f"application_clocks.graphics is {graphics} MHz; allowed with {memory}: {format_clocks(clocks[memory])}"
        ]
    return []


def _locks(gpu: Asked, locks: Any, clocks: Clocks) -> list[str]:
    problems = []
    for name, lock in locks.items():
        known = [*clocks] if name == "memory" else sorted({clock for row in clocks.values() for clock in row})
        for clock in lock if lock != "default" and known else ():
            outside = not min(known) <= clock <= max(known)
            if outside or (name == "memory" and clock not in known):
                problems.append(f"locked_clocks.{name} is {clock} MHz; allowed: {format_clocks(known)}")
                break
    return problems


def _mode(gpu: Asked, mode: Any, _clocks: Clocks) -> list[str]:
    if gpu.now.mig and mode != "default":
        return [f"compute_mode is {mode}, and a GPU in MIG mode takes default only"]
    return []


JUDGES: dict[str, Callable[[Asked, Any, Clocks], list[str]]] = {
    "ecc": _ecc,
    "power_limit": _power,
    "application_clocks": _applications,
    "locked_clocks": _locks,
    "compute_mode": _mode,
}


@check(
    "gpu_settings.clients",
    *(*STATE, nvidia.DRIVER, probe.COMPUTING),
    moment="preflight",
    evidence=probe.COMPUTING_QUERY,
)
def clients(ctx: Ctx) -> Outcome:
    """No process computes on a GPU whose compute mode would shut others out; limits and clocks change under a running
    job."""
    if reason := driverless(ctx):
        return skip(reason)
    selection = list_requests(ctx, "compute_mode")
    if isinstance(selection, Outcome):
        return selection
    closing = [
        gpu
        for gpu in selection
        if gpu.settings["compute_mode"] not in ("default", gpu.now.compute_mode) and not gpu.now.mig
    ]
    computing = ctx.facts.get(probe.COMPUTING)
    busy = [(gpu, name) for gpu in closing for name in computing.get(gpu.now.address, ())]
    if busy:
        changes = [Change(kind="client", name=f"{name} on {gpu.told}", after="ended") for gpu, name in busy]
        listed = ", ".join(f"{name} on {gpu.told}" for gpu, name in busy)
        hint = "stop or drain them first; to keep others out is felt by programs that start more processes"
        return fail("nobody on a GPU whose compute mode changes", listed, hint, changes=changes)
    return ok(
        f"nobody on {counted(len(closing), 'GPU')} whose compute mode changes"
        if closing
        else "no compute mode shuts anybody out"
    )


CHECKS = (fits, clients)
