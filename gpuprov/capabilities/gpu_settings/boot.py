"""Will the GPUs have their settings after the next boot."""

from __future__ import annotations

from gpuprov import reading
from gpuprov.capabilities import answers
from gpuprov.capabilities.answers import STARTING
from gpuprov.capabilities.base import Outcome, check, not_asked
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
    state = ctx.facts.get(probe.BOOT)
    problem = _other(ctx.fragment, state.text)
    return answers.kept_at_boot(probe.UNIT, probe.CONFIG, problem, state, STARTING, "a boot loses the settings")


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
