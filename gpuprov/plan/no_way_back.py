"""Changes of an apply that rollback could not undo: named before apply makes them, and only if it would. Pure."""

from collections.abc import Collection, Iterator, Sequence

from gpuprov.capabilities import BY_NAME
from gpuprov.capabilities.base import Change
from gpuprov.facts.probes.base import Facts, ProbeFailed
from gpuprov.facts.probes.host import house
from gpuprov.facts.probes.host.checkpoints import CHECKPOINTS, Checkpoint
from gpuprov.facts.probes.kernel.first_boot import FIRST_BOOT
from gpuprov.spec.model import HostSpec

# Maximum number of packages to name.
MOST = 4


def no_way_back(
    spec: HostSpec,
    facts: Facts,
    run: Collection[str],
    changes: Sequence[Change],
    *,
    reboots: bool,
    sets: Collection[str] = (),
) -> Iterator[str]:
    """Yield one line for each. `run`: capabilities that are applied; `sets`: those that change settings on the running
    host; `reboots`: apply may reboot the host."""
    if not run:
        return
    try:
        checkpoints, receipt = facts.get(CHECKPOINTS), facts.get(house.RECEIPT)
    except ProbeFailed:
        return  # a host that cannot be read says so elsewhere
    packages = {change.name: change.before for change in changes if change.kind == "package" and change.before}
    here = checkpoints.last
    if here is None:
        if packages or receipt:
            yield "the state before this apply: no apply has ended with a green verify yet, so there is no checkpoint"
    else:
        yield from _list_packages(here, packages)
        new = [name for name in run if stays(name) and here.spec.get(name, False) is False]
        if new:
            yield f"{', '.join(sorted(new))}: packages, and settings whose value before is not known, stay"
        yield from (f"{name}: {why}" for name in sorted(sets) if (why := until_boot(name)))
    if spec.on_failure == "rollback" and reboots:
        yield from _list_boot_reasons(facts)


def stays(name: str) -> bool:
    """True if rollback to a state without the capability leaves something of it on the host."""
    return (capability := BY_NAME.get(name)) is None or (capability.sets_up and capability.taken_away is None)


def until_boot(name: str) -> str:
    """Describe what of a capability stays until the next boot; empty for nothing."""
    stays_on = capability.until_boot if (capability := BY_NAME.get(name)) else ""
    where = "that the checkpoint does not name, and whose value before is not known,"
    return f"{stays_on} {where} stay as they are until the next boot" if stays_on else ""


def _list_packages(here: Checkpoint, packages: dict[str, str]) -> Iterator[str]:
    """Yield packages. If the checkpoint names no package (`hold: false`), rollback requests versions by the spec
    alone."""
    kept = {name for name in packages for file in here.files if file.startswith(f"{name}_")}
    known = here.packages or packages
    if lacking := sorted(name for name in packages if name in known and name not in kept):
        yield f"{_shorten(lacking)}: not kept as files, so rollback needs a repository that still has these versions"
    if others := sorted(name for name in packages if name not in known):
        yield f"{_shorten(others)}: not in the checkpoint, so rollback does not bring back these versions"


def _list_boot_reasons(facts: Facts) -> Iterator[str]:
    try:
        known = facts.get(FIRST_BOOT)
    except ProbeFailed:
        return
    if known.why_not:
        yield f"a boot that fails: {known.why_not}; somebody has to start the old kernel at the console"
        return
    if known.pending:
        files = _shorten(known.pending)
        yield f"{files}: newer than GRUB's menu, which is made anew before the reboot (update-grub), with what they say"
    if not known.watchdog:
        yield "a boot that hangs without a panic: no watchdog resets the host, so somebody has to (RuntimeWatchdogSec)"


def _shorten(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return f"{', '.join(names[:MOST])}{more}"
