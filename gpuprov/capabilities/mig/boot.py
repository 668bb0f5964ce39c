"""Will the GPUs be cut up as the block says after the next boot: NVIDIA's driver keeps no instance, and from Hopper on no mode."""

from __future__ import annotations

from collections import Counter

from gpuprov import reading
from gpuprov.capabilities import answers
from gpuprov.capabilities.answers import STARTING
from gpuprov.capabilities.base import Context, Outcome, check, fail, ok
from gpuprov.capabilities.mig import host
from gpuprov.capabilities.mig.fragment import Mig
from gpuprov.onhost.mig import layout as mig_layout
from gpuprov.probe.gpus import mig

Ctx = Context[Mig]
SHOWN = f"systemctl is-enabled {mig.MANAGER}"
WAITING = (
    *STARTING,
    *("nvidia-cdi-refresh.service", "gpuprov-cdi-refresh.service", "nvidia-dcgm.service"),
)
"""Units that look at the GPUs once, when they start."""


@check(
    "mig.boot",
    *(mig.BOOT, mig.STATE),
    fields=("mode", "layout", "config_file", "selected"),
    moment="next-boot",
    evidence=mig.BOOT.evidence,
)
def boot(ctx: Ctx) -> Outcome:
    """A unit whose last run did not fail brings back what the spec says at boot, before containers, kubelet and DCGM start."""
    state = ctx.facts.get(mig.BOOT)
    problem = _other(ctx.fragment, state.text, ctx.facts.get(mig.STATE))
    lost = "instances do not survive a reboot"
    return answers.kept_at_boot(mig.UNIT, mig.DESIRED, problem, state, WAITING, lost)


def _other(block: Mig, text: str, state: mig.MigState) -> str:
    """How what the unit reads differs from the block; empty where both ask the same of this host's GPUs."""
    if not text:
        return "not there"
    try:
        kept = reading.json(text)
        entries = mig_layout.normalise(kept["mode"], kept["layout"], kept["mig_parted"])
    except (ValueError, KeyError, TypeError) as error:
        return f"cannot be read ({error})"
    try:
        asked = host.entries(block)
        alike = entries == asked or (state.gpus and _targets(entries, state) == _targets(asked, state))
    except mig_layout.LayoutError as error:
        return f"of another spec, or for GPUs that are not here ({error})"
    return "" if alike else "of another spec"


def _targets(
    entries: list[mig_layout.Entry], state: mig.MigState
) -> dict[int, tuple[bool, Counter[mig_layout.Instance]]]:
    found = mig_layout.targets(entries, [host.seen(gpu) for gpu in state.gpus])
    return {index: (target.enabled, Counter(target.instances)) for index, target in found.items()}


@check("mig.manager", mig.BOOT, moment="next-boot", evidence=SHOWN)
def manager(ctx: Ctx) -> Outcome:
    """NVIDIA's own MIG manager does not cut the GPUs up otherwise at boot."""
    found = ctx.facts.get(mig.BOOT).manager
    if found.file.startswith("enabled"):
        hint = f"systemctl disable --now {mig.MANAGER}; mig.config_file takes its configurations as they are"
        return fail(f"{mig.MANAGER} disabled", f"{mig.MANAGER} is {found.file}, and applies its own layout", hint)
    return ok(f"{mig.MANAGER} is {found.file or found.load}")


@check("mig.rival", mig.BOOT, moment="preflight", evidence=SHOWN)
def rival(ctx: Ctx) -> Outcome:
    """NVIDIA's own MIG manager is off before anything is changed: gpuprov does not take the GPUs from it."""
    return manager.run(ctx)


CHECKS = (boot, manager, rival)
