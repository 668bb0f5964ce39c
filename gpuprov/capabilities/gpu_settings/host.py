"""Desired settings of a host's GPUs, and the outcomes if they cannot be determined."""

from __future__ import annotations

from typing import NamedTuple

from gpuprov.capabilities.base import Context, Outcome, fail, not_asked, skip
from gpuprov.capabilities.gpu_settings.fragment import GpuSettings, asks, config
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.gpus import gpu_settings as probe
from gpuprov.facts.probes.host import pci, system
from gpuprov.host_code.gpu_settings import compare, selection
from gpuprov.host_code.gpu_settings.compare import State

Ctx = Context[GpuSettings]
# Probes that decide whether the settings of GPUs can be read.
READABLE = (probe.SETTINGS, pci.NVIDIA_FUNCTIONS, system.CONTAINER)
# Probes of the settings of GPUs.
STATE = (*READABLE, nvidia.SMI)


class Asked(NamedTuple):
    """A GPU of the host, its current state, and its requested settings."""

    gpu: selection.Gpu
    now: probe.GpuSettings
    settings: compare.Settings

    @property
    def state(self) -> State:
        """The settings as they are compared."""
        now = self.now
        return State(
            (now.ecc, now.ecc_pending or now.ecc) if now.ecc else None,
            None if now.power is None else now.power * 1000,
            None if now.power_default is None else now.power_default * 1000,
            _make_pair(now.application_memory, now.application_graphics),
            _make_pair(now.default_memory, now.default_graphics),
            now.applications,
            now.compute_mode,
            bool(now.mig),
            now.graphics,
            now.memory,
            None
            if now.power_least is None or now.power_most is None
            else (now.power_least * 1000, now.power_most * 1000),
        )

    @property
    def label(self) -> str:
        """The GPU in a message."""
        return str(self.gpu)


def _make_pair(memory: int | None, graphics: int | None) -> tuple[int, int] | None:
    return None if memory is None or graphics is None else (memory, graphics)


def gpus(ctx: Ctx) -> list[tuple[selection.Gpu, probe.GpuSettings]]:
    """Return the GPUs in the order of their PCI addresses; with their UUIDs, which another probe reads, only if the
    block names one."""
    named = any(str(name).startswith("GPU-") for entry in ctx.fragment.per_gpu for name in entry.gpus)
    uuids = {gpu.bus: gpu.uuid for gpu in ctx.facts.get(nvidia.SMI).gpus} if named else {}
    seen = ctx.facts.get(probe.SETTINGS).gpus
    return [(selection.Gpu(number, gpu.address, uuids.get(gpu.address, "")), gpu) for number, gpu in enumerate(seen)]


def unreadable(ctx: Ctx) -> Outcome | None:
    """Return the outcome if the state of the GPUs cannot be determined; None if it can."""
    if not pci.gpus(ctx.facts.get(pci.NVIDIA_FUNCTIONS)):
        return skip("no NVIDIA GPU on the PCI bus")
    state, kind = ctx.facts.get(probe.SETTINGS), ctx.facts.get(system.CONTAINER)
    if state.complaint and kind:
        return skip(f"{kind} container without a loaded driver of its machine's: {state.complaint}")
    if state.complaint:
        return fail("GPUs that nvidia-smi reports", state.complaint, "see nvidia_driver.loaded")
    return None


def list_requests(ctx: Ctx, name: str = "") -> list[Asked] | Outcome:
    """Return the GPUs for which a setting (or any) is requested; or the outcome if there are none, or it cannot be
    determined."""
    if name and not asks(ctx.fragment, name):
        return not_asked()
    if answer := unreadable(ctx):
        return answer
    here = gpus(ctx)
    try:
        targets = selection.select_targets(config(ctx.fragment), [gpu for gpu, _ in here])
    except selection.SelectionError as error:
        return fail(
            "GPUs that the block names", str(error), "correct gpu_settings.per_gpu; nvidia-smi -L lists the GPUs"
        )
    rows = [Asked(gpu, now, targets[gpu.number]) for gpu, now in here if gpu.number in targets]
    return [row for row in rows if not name or name in row.settings]


def driverless(ctx: Ctx) -> str:
    """Return why the GPUs cannot be read before apply, if that is not a fault: the driver comes with the same apply."""
    complaint = ctx.facts.get(probe.SETTINGS).complaint
    if complaint and "nvidia_driver" in ctx.host.capabilities and not ctx.facts.get(nvidia.DRIVER).version:
        return f"the driver is installed by the same apply ({complaint})"
    return ""


def describe_gpus(words: list[tuple[Asked, str]]) -> str:
    """Return the words of each GPU; GPUs with the same words together."""
    alike: dict[str, list[Asked]] = {}
    for gpu, text in words:
        alike.setdefault(text, []).append(gpu)
    return "; ".join(
        f"{rows[0].label if len(rows) == 1 else 'GPUs ' + ', '.join(str(row.gpu.number) for row in rows)}: {text}"
        for text, rows in alike.items()
    )
