"""Checks that the host's GPUs support these settings, by their own limits, and whose work they would end, made before
anything is changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from gpuprov.capabilities.base import Change, Outcome, check, fail, ok, skip
from gpuprov.capabilities.gpu_settings.host import STATE, Ctx, driverless, list_requests
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.gpus import gpu_settings as probe
from gpuprov.host_code.gpu_settings.limits import Clocks, refuse, shuts_out


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
    listed = {gpu.label: _list_clocks(clocks.get(gpu.now.address, {})) for gpu in selection}
    wrong = [
        f"{gpu.label}: {text}"
        for gpu in selection
        for text in refuse(gpu.state, gpu.settings, partial(listed.__getitem__, gpu.label))
    ]
    if wrong:
        return fail("settings that these GPUs accept", "; ".join(wrong), "correct gpu_settings in the spec")
    return ok(f"the settings are supported by {counted(len(selection), 'GPU')}")


def _list_clocks(clocks: Mapping[int, Sequence[int]]) -> Clocks:
    return Clocks([*clocks], lambda memory: clocks[memory])


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
    closing = [gpu for gpu in selection if shuts_out(gpu.state, gpu.settings["compute_mode"])]
    computing = ctx.facts.get(probe.COMPUTING)
    busy = [(gpu, name) for gpu in closing for name in computing.get(gpu.now.address, ())]
    if busy:
        changes = [Change(kind="client", name=f"{name} on {gpu.label}", after="ended") for gpu, name in busy]
        listed = ", ".join(f"{name} on {gpu.label}" for gpu, name in busy)
        fix = "stop or drain them first; to keep others out is felt by programs that start more processes"
        return fail("no process on a GPU whose compute mode changes", listed, fix, changes=changes)
    return ok(
        f"no process on {counted(len(closing), 'GPU')} whose compute mode changes"
        if closing
        else "no compute mode excludes a process"
    )


CHECKS = (fits, clients)
