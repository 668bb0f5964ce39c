"""Will the GPUs have their settings after the next boot."""

from __future__ import annotations

from gpuprov import reading
from gpuprov.capabilities.answers import APPLY, STARTING
from gpuprov.capabilities.base import Change, Outcome, check, fail, not_asked, ok
from gpuprov.capabilities.gpu_settings.fragment import GpuSettings, config
from gpuprov.capabilities.gpu_settings.host import STATE, Asked, Ctx, asked
from gpuprov.capabilities.gpu_settings.now import compared
from gpuprov.probe.gpus import gpu_settings as probe


def asks_anything(block: GpuSettings) -> bool:
    wanted = config(block)
    return bool(wanted["all"] or wanted["per_gpu"])


@check(
    "gpu_settings.boot",
    probe.BOOT,
    fields=("ecc", "power_limit", "application_clocks", "locked_clocks", "compute_mode", "per_gpu"),
    moment="next-boot",
)
def boot(ctx: Ctx) -> Outcome:
    """A unit whose last run did not fail sets what the spec says at each boot, before containers, kubelet and slurmd start."""
    if not asks_anything(ctx.fragment):
        return not_asked("no setting is asked for")
    unit = ctx.facts.get(probe.BOOT)
    expected = f"{probe.UNIT} enabled, and {probe.CONFIG} as the spec"
    problem = _other(ctx.fragment, unit.config)
    written = [Change(kind="file", name=probe.CONFIG, before=problem, after="written")] if problem else []
    if unit.file != "enabled":
        before = unit.file or unit.load
        change = Change(kind="service", name=probe.UNIT, before=before, after="enabled")
        return fail(expected, f"{probe.UNIT} is {before}: a boot loses the settings", APPLY, changes=[change, *written])
    if problem:
        return fail(expected, f"{probe.CONFIG}: {problem}", APPLY, changes=written)
    if unit.gone:
        before = f"starts {unit.gone[0]}, which is not there"
        change = Change(kind="file", name=probe.UNIT, before=before, after="written")
        return fail(expected, f"{probe.UNIT} starts {' '.join(unit.gone)}: not there", APPLY, changes=[change])
    if late := [name for name in STARTING if name not in unit.before]:
        hint = f"{APPLY} writes the unit anew; see drop-ins of it: systemctl cat {probe.UNIT}"
        return fail(f"{probe.UNIT} before {', '.join(STARTING)}", f"not before {', '.join(late)}", hint)
    if unit.result not in ("", "success") or unit.active == "failed":
        said = f": {unit.log[-1]}" if unit.log else ""
        change = Change(kind="service", name=probe.UNIT, before="failed", after="restarted")
        hint = f"journalctl -u {probe.UNIT} -n 20; then systemctl restart {probe.UNIT}"
        found = f"{probe.UNIT} failed ({unit.result or unit.active}){said}"
        return fail("a last run that did not fail", found, hint, changes=[change])
    return ok(expected)


def _other(block: GpuSettings, text: str) -> str:
    """How what the unit reads differs from the block; empty where it is the same."""
    if not text:
        return "not there"
    try:
        kept = reading.json(text)
    except ValueError as error:
        return f"cannot be read ({error})"
    return "" if kept == config(block) else "of another spec"


@check("gpu_settings.ecc_boot", *STATE, fields=("ecc", "per_gpu"), moment="next-boot", evidence="nvidia-smi -q -d ECC")
def ecc_boot(ctx: Ctx) -> Outcome:
    """The ECC mode that is pending on each GPU is the one asked for: the GPU keeps it, and a boot brings it into force."""

    def pair(one: Asked) -> tuple[str, str]:
        return one.settings["ecc"], one.now.ecc_pending or "no ECC mode"

    return compared(asked(ctx, "ecc"), "ECC mode after the next boot", pair)


CHECKS = (boot, ecc_boot)
