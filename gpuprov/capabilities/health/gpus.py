"""Checks of what the GPUs report about themselves."""

from typing import Any

from gpuprov.capabilities.base import Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.health.fragment import Ctx
from gpuprov.capabilities.health.machine import not_answering
from gpuprov.capabilities.health.rack import IMEX, with_recovery
from gpuprov.capabilities.health.reported import NO_BUS, describe_gpus, fail_gpus, judge_rest, select_gpus_with, shown
from gpuprov.catalog import xids as catalogue
from gpuprov.catalog.xids import Recovery
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.base import NotRecorded
from gpuprov.facts.probes.gpus.fabric import STATE
from gpuprov.facts.probes.gpus.gpu_health import GPU_HEALTH, REASONS
from gpuprov.facts.probes.gpus.gpu_state import GpuHealth, State
from gpuprov.facts.probes.host import system

# Brands whose cards with ECC ship with it off; data centre cards ship with it on.
WITHOUT_ECC = ("GeForce", "Titan", "Quadro", "NVIDIA RTX", "NVS")
RETURN = "drain the host, run NVIDIA's field diagnostics, and return the card to its vendor"
GONE = "journalctl -k -b | grep -E 'NVRM|pci'; a GPU that stays away: its seat, its riser, its vendor"
BELOW = "nvidia-smi -q -d TEMPERATURE,PERFORMANCE"


def reset_fix() -> str:
    """Return what a person does about a GPU that needs a reset."""
    return catalogue.get_recovery("GPU Reset").fix


@check("health.gpus", GPU_HEALTH, system.CONTAINER, evidence="nvidia-smi -L; lspci -d 10de:; nvidia-smi -q")
def gpus_answer(ctx: Ctx) -> Outcome:
    """nvidia-smi shows every NVIDIA GPU that is on the PCI bus, at least as many as the spec says, and each answers."""
    state: State = ctx.facts.get(GPU_HEALTH)
    count = (ctx.host.gpu.count or 1) if ctx.host.gpu else 0
    present = max(state.present, len(state.gpus)) + state.given
    container = ctx.facts.get(system.CONTAINER)
    if present < count and (present or not container):
        actual = f"{present} {'on the PCI bus' if state.bus else 'shown by nvidia-smi'}"
        return fail(counted(count, "GPU"), actual, f"drain the host, power it off and on; {GONE}", action="drain")
    given = f"{counted(state.given, 'GPU')} with vfio-pci, for virtual machines" if state.given else ""
    if not state.gpus and not state.bus:
        raise NotRecorded(NO_BUS)
    if not state.present and not state.gpus:
        return not_asked(given or "no NVIDIA GPU on the PCI bus")
    # A container sees the machine's whole bus, and has the GPUs that it was given.
    least = (count or 1) if container else state.present
    expected = f"{counted(least, 'GPU')} answering"
    if state.gone:
        words = f"{', '.join(state.gone)} on the bus, and does not answer (rev ff)"
        return fail(expected, words, "restart the host; gpuprov explain 79", action="reboot")
    if state.complaint or len(state.gpus) < least:
        words = state.complaint or f"{counted(len(state.gpus), 'GPU')}: {' '.join(gpu.address for gpu in state.gpus)}"
        return not_answering(expected, words, complaint=bool(state.complaint))
    if broken := [(gpu, f"says: {gpu.broken}") for gpu in state.gpus if gpu.broken]:
        if any("lost" in gpu.broken for gpu, _ in broken):
            return fail_gpus(expected, broken, "restart the host; gpuprov explain 79", "reboot")
        return fail_gpus(expected, broken, reset_fix(), "reset")
    if untold := [(gpu, f"cannot tell for an error: {', '.join(gpu.untold)}") for gpu in state.gpus if gpu.untold]:
        return skip(describe_gpus(untold), "journalctl -k | grep NVRM; restart the host if it stays so")
    if not state.bus:
        raise NotRecorded(f"{counted(len(state.gpus), 'GPU')} in nvidia-smi -q; the record does not hold the PCI bus")
    return ok("; ".join(filter(None, (counted(len(state.gpus), "GPU"), given))), expected)


@check("health.recovery", GPU_HEALTH, STATE, evidence="nvidia-smi -q | grep -E '^GPU|Recovery Action|Reset Required'")
def recovery(ctx: Ctx) -> Outcome:
    """The driver reports for no GPU that it needs a reset, a reboot or a drain."""
    gpus = shown(ctx)
    relevant, nothing = select_gpus_with(
        gpus, lambda gpu: bool(gpu.recovery) or gpu.reset_required is not None, "recovery action"
    )
    if nothing:
        return nothing
    needs: list[tuple[GpuHealth, Recovery, str]] = []
    for gpu in relevant:
        known = catalogue.get_recovery(gpu.recovery) if gpu.recovery else None
        if known and known.action != "none":
            needs.append((gpu, known, f"needs: {gpu.recovery}, {known.words}"))
        elif gpu.reset_required:
            needs.append((gpu, catalogue.get_recovery("GPU Reset"), "needs a reset"))
        elif gpu.reset_advised and not known:
            needs.append((gpu, catalogue.get_recovery("Drain and Reset"), "is to be drained and reset"))
    if needs:
        top = max((row for _, row, _ in needs), key=lambda row: catalogue.SEVERITY.index(row.action))
        bad = [(gpu, words) for gpu, _, words in needs]
        imex = [gpu.address for gpu, row, _ in needs if row is IMEX]
        return with_recovery(ctx, fail_gpus("no GPU that needs it", bad, top.fix, top.action), imex)
    return judge_rest(relevant, gpus, "a word of it", "", "no GPU that needs it")


@check("health.ecc_mode", GPU_HEALTH, fields=("ecc",), evidence="nvidia-smi -q -d ECC")
def ecc_mode(ctx: Ctx) -> Outcome:
    """ECC is on in each GPU that has it, or that ships with it on."""
    mode = ctx.fragment.ecc
    if mode == "any":
        return not_asked("ecc: any")
    if mode == "delivered" and _is_meant_to_be_off(ctx):
        return not_asked("gpu_settings asks for it off")
    gpus = shown(ctx)
    relevant, nothing = select_gpus_with(gpus, lambda gpu: bool(gpu.ecc), "ECC")
    if nothing:
        return nothing
    off = [gpu for gpu in relevant if gpu.ecc != "enabled"]
    let = [gpu for gpu in off if mode == "delivered" and gpu.brand.startswith(WITHOUT_ECC)]
    if bad := [(gpu, "has it off") for gpu in off if gpu not in let]:
        return fail("ECC on", describe_gpus(bad), "gpu_settings: {ecc: enabled} in the spec, or health: {ecc: any}")
    if let and len(let) == len(relevant):
        return not_asked(f"{let[0].name} comes with ECC off")
    return judge_rest(relevant, gpus, "ECC", f"; off in {len(let)} that come so" if let else "", "ECC on")


def _is_meant_to_be_off(ctx: Ctx) -> bool:
    block: Any = ctx.host.capabilities.get("gpu_settings")
    return block is not None and any(entry.ecc == "disabled" for entry in (block, *block.per_gpu))


@check("health.ecc_errors", GPU_HEALTH, fields=("uncorrected_errors",), evidence="nvidia-smi -q -d ECC")
def ecc_errors(ctx: Ctx) -> Outcome:
    """No GPU has more uncorrectable ECC errors than the spec allows, nor so many in SRAM that NVIDIA accepts it for
    replacement."""
    gpus, limit = shown(ctx), ctx.fragment.uncorrected_errors
    relevant, nothing = select_gpus_with(gpus, lambda gpu: gpu.ecc == "enabled", "ECC that is on")
    if nothing:
        return nothing
    expected = f"at most {limit} uncorrectable errors since the driver was loaded"
    exceeded = [(gpu, "exceeds NVIDIA's threshold of SRAM errors") for gpu in relevant if gpu.sram_exceeded]
    if exceeded:
        return fail_gpus(expected, exceeded, RETURN, "return")
    counts = [(gpu, gpu.volatile.uncorrected) for gpu in relevant]
    bad = [
        (
            gpu,
            f"has {count} ({gpu.aggregate.uncorrected if gpu.aggregate.uncorrected is not None else '?'} in all its "
            "life)",
        )
        for gpu, count in counts
        if count is not None and count > limit
    ]
    if bad:
        return fail_gpus(expected, bad, reset_fix(), "reset")
    if silent := [gpu.address for gpu, count in counts if count is None]:
        return skip(f"ECC is on, but its errors are not reported: {' '.join(silent)}")
    corrected = sum(gpu.volatile.corrected or 0 for gpu in relevant)
    off = sum(1 for gpu in gpus if gpu.ecc == "disabled")
    more = f"{f'; off in {off}' if off else ''}; {corrected} corrected"
    return judge_rest(
        relevant,
        tuple(gpu for gpu in gpus if gpu.ecc != "disabled"),
        "ECC",
        more,
        expected,
        ("ECC Errors", "ECC Mode", "Ecc Mode"),
    )


@check("health.remapped_rows", GPU_HEALTH, fields=("remapped_rows",), evidence="nvidia-smi -q -d ROW_REMAPPER")
def remapped_rows(ctx: Ctx) -> Outcome:
    """No row waits for remapping, no remapping failed, and not too many rows are remapped for uncorrectable errors; no
    repair of memory or shaders is pending, and no memory is beyond repair."""
    gpus, limit = shown(ctx), ctx.fragment.remapped_rows
    relevant, nothing = select_gpus_with(
        gpus,
        lambda gpu: (
            gpu.remap_pending is not None or gpu.remap_failed is not None or bool(gpu.repairs or gpu.unrepairable)
        ),
        "row remapping",
    )
    if nothing:
        return nothing
    expected = f"none pending, none failed, fewer than {limit} for uncorrectable errors"
    worn = [(gpu, "has a remapping that failed") for gpu in relevant if gpu.remap_failed]
    worn += [(gpu, "has memory that cannot be repaired") for gpu in relevant if gpu.unrepairable]
    worn += [(gpu, f"has {gpu.remapped}") for gpu in relevant if (gpu.remapped or 0) >= limit and not gpu.remap_failed]
    waiting = [
        (gpu, f"has one pending ({gpu.remapped or 0} for uncorrectable errors so far)")
        for gpu in relevant
        if gpu.remap_pending
    ]
    waiting += [(gpu, f"says: {', '.join(gpu.repairs)}") for gpu in relevant if gpu.repairs]
    if worn:
        return fail_gpus(expected, worn + waiting, RETURN, "return")
    if waiting:
        return fail_gpus(expected, waiting, f"{reset_fix()}: it takes effect then", "reset")
    many = sum((gpu.remapped or 0) + (gpu.remapped_corrected or 0) for gpu in relevant)
    more = f"; {many} rows remapped"
    return judge_rest(relevant, gpus, "row remapping", more, expected, ("Remapped Rows", "ECC Errors"))


@check("health.retired_pages", GPU_HEALTH, fields=("retired_pages",), evidence="nvidia-smi -q -d PAGE_RETIREMENT")
def retired_pages(ctx: Ctx) -> Outcome:
    """On GPUs before Ampere: no page waits for retirement, and not too many are retired."""
    gpus, limit = shown(ctx), ctx.fragment.retired_pages
    relevant, nothing = select_gpus_with(gpus, lambda gpu: gpu.retired is not None, "retired pages")
    if nothing:
        return nothing
    expected = f"none pending, fewer than {limit}"
    if worn := [(gpu, f"has {gpu.retired}") for gpu in relevant if (gpu.retired or 0) >= limit]:
        return fail_gpus(expected, worn, RETURN, "return")
    if waiting := [(gpu, "has one pending") for gpu in relevant if gpu.retired_pending]:
        return fail_gpus(expected, waiting, f"{reset_fix()}: the page is retired then", "reset")
    if silent := [gpu.address for gpu in relevant if gpu.retired and gpu.retired_pending is None]:
        return skip(f"pages are retired, and whether one is pending is not reported: {' '.join(silent)}")
    pages = sum(gpu.retired or 0 for gpu in relevant)
    return judge_rest(relevant, gpus, "retired pages", f"; {pages} pages", expected, ("Retired Pages",))


@check("health.slowdown", GPU_HEALTH, fields=("slowdown",), evidence=BELOW)
def slowdown(ctx: Ctx) -> Outcome:
    """No GPU is slowed down by its hardware, by heat or by its power supply; the power limit and idle clocks do not
    count."""
    if ctx.fragment.slowdown == "any":
        return not_asked("slowdown: any")
    gpus = shown(ctx)
    relevant, nothing = select_gpus_with(gpus, lambda gpu: gpu.slow is not None, "word of what slows it down")
    if nothing:
        return nothing
    bad = [(gpu, f"is slow: {', '.join(gpu.slow)}") for gpu in relevant if gpu.slow]
    if bad:
        brake = any("Power Brake" in words for _, words in bad)
        fix = (
            "the chassis's power supplies and their redundancy"
            if brake
            else "air flow, inlet temperature, fans, the card's seat"
        )
        return fail("no GPU slowed down", describe_gpus(bad), f"drain the host; look at {fix}", action="drain")
    return judge_rest(relevant, gpus, "a word of it", "", "no GPU slowed down", REASONS)


@check("health.temperature", GPU_HEALTH, fields=("temperature_margin",), evidence=BELOW)
def temperature(ctx: Ctx) -> Outcome:
    """Each GPU is as far below its slowdown temperature as the spec asks for, and its memory below its maximum."""
    gpus, margin = shown(ctx), ctx.fragment.temperature_margin
    relevant, nothing = select_gpus_with(gpus, lambda gpu: gpu.below is not None, "slowdown temperature")
    if nothing:
        return nothing
    expected = f"more than {margin} C below the slowdown temperature"
    bad = [(gpu, f"is {gpu.below} C below it, at {gpu.degrees} C") for gpu in relevant if (gpu.below or 0) <= margin]
    bad += [
        (gpu, f"has its memory {gpu.memory_below} C below its highest")
        for gpu in gpus
        if gpu.memory_below is not None and gpu.memory_below <= margin
    ]
    if bad:
        return fail(
            expected, describe_gpus(bad), "drain the host; look at air flow, inlet temperature and fans", action="drain"
        )
    least = min(gpu.below or 0 for gpu in relevant)
    return judge_rest(relevant, gpus, "one", f"; the hottest is {least} C below", expected)


@check("health.power", GPU_HEALTH, fields=("power_cap",), evidence="nvidia-smi -q -d POWER")
def power(ctx: Ctx) -> Outcome:
    """Each GPU reports its power draw, and nothing holds it below the configured power limit."""
    if ctx.fragment.power_cap == "any":
        return not_asked("power_cap: any")
    gpus = shown(ctx)
    relevant, nothing = select_gpus_with(
        gpus, lambda gpu: gpu.limit is not None and gpu.enforced is not None, "power limit"
    )
    if nothing:
        return nothing
    held = [
        (gpu, f"is held at {gpu.enforced:g} W of {gpu.limit:g} W")
        for gpu in relevant
        if (gpu.enforced or 0) < (gpu.limit or 0)
    ]
    if held:
        return fail(
            "the limit that is set",
            describe_gpus(held),
            "something else holds it: the BMC, a limit of the module, or a power profile (nvidia-smi power-profiles)",
        )
    drawn = [gpu.draw for gpu in relevant if gpu.draw is not None]
    if hidden := [gpu for gpu in relevant if gpu.draw is None and gpu.draw_hidden]:
        return skip(f"no power draw is reported by {counted(len(hidden), 'GPU')}")
    most = f"; at most {max(drawn):g} W drawn" if drawn else "; no word of what it draws"
    return judge_rest(relevant, gpus, "a limit", most, "the limit that is set")


CHECKS = (
    gpus_answer,
    recovery,
    ecc_mode,
    ecc_errors,
    remapped_rows,
    retired_pages,
    slowdown,
    temperature,
    power,
)
