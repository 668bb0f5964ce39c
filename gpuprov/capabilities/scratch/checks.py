"""Checks of the scratch file system: whether its disks may be used, and whether it is mounted."""

from gpuprov.capabilities.answers import APPLY
from gpuprov.capabilities.base import Change, Context, Outcome, check, fail, ok
from gpuprov.capabilities.scratch.fragment import Scratch, parse_block
from gpuprov.catalog import scratch as catalogue
from gpuprov.facts.probes.host.scratch import SCRATCH
from gpuprov.host_code.at_boot import scratch as onhost
from gpuprov.host_code.at_boot.scratch import Decision

Ctx = Context[Scratch]
FIELDS = ("mount", "disks", "count", "filesystem", "mode")
STEPS = {
    onhost.CREATE: "blank",
    onhost.FORMAT: "not formatted",
    onhost.ASSEMBLE: "gpuprov's array, not assembled",
    onhost.MOUNT: "gpuprov's file system, not mounted",
    onhost.MODE: "mounted, with another mode",
}


def decide(ctx: Ctx) -> Decision:
    """Return the decision of the boot unit's own program, by what the host has now."""
    return onhost.decide(ctx.facts.get(SCRATCH).state, parse_block(ctx.fragment))


def describe(ctx: Ctx, decision: Decision) -> str:
    """Describe the file system that the spec asks for on these disks."""
    return f"{ctx.fragment.mount}: {onhost.describe(decision, parse_block(ctx.fragment))}, mode {ctx.fragment.mode}"


@check("scratch.disks", SCRATCH, fields=FIELDS, moment="preflight")
def disks(ctx: Ctx) -> Outcome:
    """Each disk that the spec names is wholly blank, or belongs to the file system that gpuprov made on this host."""
    decision = decide(ctx)
    if decision.obstacles:
        reasons = [what for what, _ in decision.obstacles]
        return fail(
            "local NVMe disks that are blank, or gpuprov's own",
            "; ".join(reasons),
            "; ".join(dict.fromkeys(way for _, way in decision.obstacles)),
        )
    return ok(f"{STEPS.get(decision.action, 'in use as the spec says')}: {', '.join(map(str, decision.disks))}")


@check(
    "scratch.mounted",
    SCRATCH,
    fields=FIELDS,
    evidence=f"findmnt -o TARGET,SOURCE,FSTYPE; systemctl status {catalogue.UNIT}",
)
def mounted(ctx: Ctx) -> Outcome:
    """The file system is mounted where the spec says, from the array or the disk that gpuprov made."""
    decision = decide(ctx)
    if decision.obstacles:
        return fail(f"a file system on {ctx.fragment.mount}", decision.obstacles[0].what, "see scratch.disks")
    expected = describe(ctx, decision)
    if decision.action == onhost.KEEP:
        return ok(expected)
    before = STEPS[decision.action]
    changes = [
        Change(kind="setting", name=str(disk), before=before, after=ctx.fragment.mount) for disk in decision.disks
    ]
    return fail(expected, f"{before}: {' '.join(disk.name for disk in decision.disks)}", APPLY, changes=changes)


CHECKS = (mounted, disks)
