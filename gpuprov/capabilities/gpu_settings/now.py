"""Checks of the settings as they are now: each is read back, except locked clocks, which no program can read."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gpuprov.capabilities.answers import APPLY
from gpuprov.capabilities.base import Outcome, not_asked, skip
from gpuprov.capabilities.compared import Group, compared
from gpuprov.capabilities.gpu_settings.fragment import asks
from gpuprov.capabilities.gpu_settings.host import STATE, Asked, Ctx, describe_gpus, gpus, list_requests, unreadable
from gpuprov.capabilities.gpu_settings.rules import VOLATILE
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.gpus import gpu_settings as probe
from gpuprov.facts.probes.host.system import CONTAINER
from gpuprov.host_code.gpu_settings.compare import (
    Locks,
    Pair,
    compare_applications,
    compare_ecc,
    compare_lock,
    compare_mode,
    compare_power,
    format_span,
    format_watts,
)
from gpuprov.host_code.lasting import AGAIN, DRIVER
from gpuprov.resources import Setting

COMPUTE_MODE, PENDING_ECC = "compute mode", "ECC mode after the next boot"
# Reasons for which a GPU may be below a locked minimum: nvidia-smi -q -d PERFORMANCE. Those with Thermal or Brake in
# their name count, too.
LOW = ("SW Power Cap", "HW Slowdown", "Idle")


def state_settings(
    ctx: Ctx,
    selection: list[Asked] | Outcome,
    what: str,
    compare: Callable[[Asked], Pair],
    fix: str = APPLY,
    reboot: str = "",
) -> Group | Outcome:
    """Return a setting of each GPU for which it is requested."""
    if isinstance(selection, Outcome):
        return selection
    rows = [(gpu, *compare(gpu)) for gpu in selection]
    resources = tuple(
        Setting(
            kind=what,
            name=f"{gpu.label}: {what}",
            device=gpu.label,
            value=desired,
            words="{devices}: {before}",
            moment="next-boot" if what == PENDING_ECC else "now",
            reboot=reboot,
            clients=what == COMPUTE_MODE and desired != "default",
        )
        for gpu, desired, _ in rows
    )
    return Group(
        resources,
        {(gpu.label, ""): actual for gpu, _, actual in rows},
        expected=describe_gpus([(gpu, desired) for gpu, desired, _ in rows]),
        right=describe_gpus([(gpu, actual) for gpu, _, actual in rows]),
        fix=fix,
        present=tuple(str(gpu) for gpu, _ in gpus(ctx)),
    )


@compared(
    "gpu_settings.ecc",
    *STATE,
    fields=("ecc", "per_gpu"),
    evidence="nvidia-smi --query-gpu=pci.bus_id,ecc.mode.current,ecc.mode.pending --format=csv",
    until=AGAIN,
)
def ecc(ctx: Ctx) -> Group | Outcome:
    """ECC of each GPU's memory is in the mode that the spec asks for, not only after the next boot; a GPU is never
    reset for it."""
    selection = list_requests(ctx, "ecc")
    if isinstance(selection, Outcome):
        return selection
    pairs = [(gpu, *compare_ecc(gpu.state, gpu.settings["ecc"])) for gpu in selection if gpu.now.ecc]
    other = [gpu for gpu, now, _ in pairs if now.differs]
    waiting = not any(pending.differs for _, now, pending in pairs if now.differs)
    reboot = f"the ECC mode of {', '.join(gpu.label for gpu in other)} changes at a boot" if other else ""

    def compare(gpu: Asked) -> Pair:
        now, pending = compare_ecc(gpu.state, gpu.settings["ecc"])
        later = f", {pending.actual} is pending" if pending.actual != now.actual else ""
        return Pair(now.expected, f"{now.actual}{later}")

    fix = "reboot: a pending ECC mode waits for it" if other and waiting else f"{APPLY}, then a reboot"
    return state_settings(ctx, selection, "ECC mode", compare, fix if reboot else APPLY, reboot)


@compared(
    "gpu_settings.power_limit",
    *STATE,
    fields=("power_limit", "per_gpu"),
    evidence="nvidia-smi -q -d POWER",
    until=DRIVER,
)
def power_limit(ctx: Ctx) -> Group | Outcome:
    """The power limit set on each GPU matches the spec; another limiter, such as the BMC's, may enforce less."""
    selection = list_requests(ctx, "power_limit")
    group = state_settings(
        ctx, selection, "power limit", lambda gpu: compare_power(gpu.state, gpu.settings["power_limit"])
    )
    if isinstance(selection, Outcome) or isinstance(group, Outcome):
        return group
    less = [
        (gpu, f"{format_watts(gpu.now.power_enforced * 1000)} in force, by another limiter")
        for gpu in selection
        if gpu.now.power is not None and gpu.now.power_enforced is not None and gpu.now.power_enforced < gpu.now.power
    ]
    return msgspec.structs.replace(group, right=f"{group.right}; {describe_gpus(less)}") if less else group


@compared(
    "gpu_settings.application_clocks",
    *STATE,
    fields=("application_clocks", "per_gpu"),
    evidence="nvidia-smi -q -d CLOCK",
    until=DRIVER,
)
def application_clocks(ctx: Ctx) -> Group | Outcome:
    """Each GPU's application clocks match the spec, or are its own."""
    return state_settings(
        ctx,
        list_requests(ctx, "application_clocks"),
        "application clocks",
        lambda gpu: compare_applications(gpu.state, gpu.settings["application_clocks"]),
    )


@compared(
    "gpu_settings.locked_clocks",
    *(*STATE, probe.KEPT),
    fields=("locked_clocks", "per_gpu"),
    evidence=f"nvidia-smi -q -d CLOCK,PERFORMANCE; cat {probe.RECORD}",
    until=DRIVER,
)
def locked_clocks(ctx: Ctx) -> Group | Outcome:
    """Each clock was locked as the spec asks since the driver was loaded, and the GPU's clocks do not contradict it."""
    locks = ctx.facts.get(probe.KEPT).locks

    def compare(gpu: Asked) -> Pair:
        spans, noted = gpu.settings["locked_clocks"], locks.get(gpu.now.address, {})
        expected = ", ".join(f"{name} {format_span(spans[name])}" for name in spans)
        pairs = {name: compare_lock(gpu.state, name, span, noted) for name, span in spans.items()}
        actual = ", ".join(f"{name} {pair.actual}" for name, pair in pairs.items())
        return Pair(expected, ("" if actual != expected else "; ".join(list_slow(gpu, spans))) or actual)

    return state_settings(ctx, list_requests(ctx, "locked_clocks"), "locked clocks", compare)


def list_slow(gpu: Asked, locks: Locks) -> list[str]:
    """Return clocks below half the minimum of a GPU that gives no reason for it."""
    # The driver goes somewhat below the minimum without a reason: a card's voltage does not carry 3105 MHz, and it
    # shows 2730 (https://github.com/nvidia-holoscan/holohub/pull/714,
    # https://github.com/NVIDIA/open-gpu-kernel-modules/issues/1314).
    problems = []
    slow = any(reason in LOW or "Thermal" in reason or "Brake" in reason for reason in gpu.now.reasons)
    for name, lock in locks.items():
        clock = gpu.now.graphics if name == "graphics" else gpu.now.memory
        if lock != "default" and clock is not None and 2 * clock < lock[0] and not slow:
            problems.append(f"{name} at {clock} MHz, far below {lock[0]} MHz, and the GPU says no reason")
    return problems


@compared(
    "gpu_settings.compute_mode",
    *STATE,
    fields=("compute_mode", "per_gpu"),
    evidence="nvidia-smi --query-gpu=pci.bus_id,compute_mode --format=csv",
    until=DRIVER,
)
def compute_mode(ctx: Ctx) -> Group | Outcome:
    """Each GPU is in the compute mode that the spec asks for."""
    return state_settings(
        ctx,
        list_requests(ctx, "compute_mode"),
        COMPUTE_MODE,
        lambda gpu: compare_mode(gpu.state, gpu.settings["compute_mode"]),
    )


@compared(
    "gpu_settings.confidential_computing",
    *(*STATE, probe.CONFIDENTIAL),
    fields=("confidential_computing",),
    evidence="nvidia-smi conf-compute -f; nvidia-smi conf-compute -d",
)
def confidential_computing(ctx: Ctx) -> Group | Outcome:
    """The GPUs are in the confidential-computing mode that the spec says; the operator of the machine sets it, gpuprov
    never does."""
    target = ctx.fragment.confidential_computing
    if target == "keep":
        return not_asked()
    if answer := unreadable(ctx):
        return answer
    state = ctx.facts.get(probe.CONFIDENTIAL)
    mode = Setting(kind="confidential computing", value=target, words="{before}")
    fix = (
        "set it where the GPU is given out: nvidia_gpu_tools.py --set-cc-mode on the hypervisor, with a reset of "
        "the GPU"
    )
    return Group(
        (mode,), {("", ""): state.mode or state.complaint}, expected=target, right=state.mode, fix=fix, changed=""
    )


@compared("gpu_settings.persistence", *STATE, fields=(), evidence=nvidia.SMI.evidence)
def persistence(ctx: Ctx) -> Group | Outcome:
    """Persistence mode is on if limits or clocks are requested: without it the driver forgets them with its last
    user."""
    if not any(asks(ctx.fragment, name) for name in VOLATILE):
        return not_asked("no setting that the driver forgets")
    selection = list_requests(ctx)
    if isinstance(selection, Outcome):
        return selection
    if kind := ctx.facts.get(CONTAINER):
        return skip(f"{kind} container: the GPUs are the machine's, not this host's")
    on = {gpu.bus for gpu in ctx.facts.get(nvidia.SMI).gpus if gpu.persistence}
    modes = {(gpu.label, ""): "Enabled" if gpu.now.address in on else "Disabled" for gpu in selection}
    mode = Setting(kind="persistence mode", value="Enabled", words="not Enabled: {devices}")
    return Group(
        tuple(msgspec.structs.replace(mode, device=gpu.label) for gpu in selection),
        modes,
        expected="persistence mode Enabled",
        right=f"Enabled on {counted(len(selection), 'GPU')}",
        fix="add persistence: {} to the spec",
        changed="",
    )


CHECKS = (
    ecc,
    power_limit,
    application_clocks,
    locked_clocks,
    compute_mode,
    confidential_computing,
    persistence,
)
