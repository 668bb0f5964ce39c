"""Ends of lines in the kernel log: lines before a boot, a reset, a recovery or the driver's own word are past."""

from bisect import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from math import inf
from typing import NamedTuple

from gpuprov.catalog.verdicts import Verdict, judge_line
from gpuprov.catalog.xids import RECOVERY, SXID, Recovery, get_recovery, recovery_word
from gpuprov.facts.probes.host.checkpoints import Repair
from gpuprov.facts.probes.kernel.kernel_log import KernelLog, Line
from gpuprov.facts.probes.kernel.stamps import UNTIMED

# Seconds within which the driver follows an Xid with what the GPU needs: it does so at once, in a work item of its own
# (gpuRefreshRecoveryAction,
# https://github.com/NVIDIA/open-gpu-kernel-modules/blob/595.45.04/src/nvidia/src/kernel/gpu/gpu.c).
WITHIN = 30.0
# Seconds between the lines of two switches after which they are of two resets; a switch takes less than one.
APART = 30.0
# Actions of Xids in place of which the driver's word counts also when it says that the GPU needs nothing. A power
# cable that is off, a defect for the vendor's support and old software are as before.
OF_DRIVER = ("none", "reset", "reboot")
# A time below this is not a clock time: dmesg in a record gives only seconds since the boot.
NO_CLOCK = 100_000_000


def is_untimed(at: float) -> bool:
    """Return whether a line has no time: it is of a log that shows the order of its lines alone."""
    return UNTIMED <= at < NO_CLOCK


def moment(at: float) -> str:
    if is_untimed(at):
        return "at an unknown time"
    if at < NO_CLOCK:
        return f"{at:.0f} s after the boot"
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")


class Change(NamedTuple):
    """A change in the recovery action that a GPU needs, which the driver logs as Xid 154."""

    # Index of its line.
    place: int
    needs: Recovery


class Ending(NamedTuple):
    """The end of a line, and its time."""

    # Index of the line that says so, -1 for the boot.
    place: int
    words: str
    at: float

    def __str__(self) -> str:
        return f"{self.words}{',' if ' ' in self.words else ''} {moment(self.at)}"


class Endings(NamedTuple):
    """Ends of lines. Lines are compared by their place in the log, since several may bear the same time."""

    lines: Sequence[Line]
    # When this boot began, 0 if all lines are of it.
    boot: float
    # Place at which the last reset of GPUs begins.
    reset: int
    # Last place at which a switch was found, by address.
    switches: Mapping[str, int]
    # In what each GPU needs.
    changes: Mapping[str, Sequence[Change]]
    # Last place, by key and device.
    recovered: Mapping[tuple[str, str], int]
    # Resets by gpuprov, of a GPU that the kernel does not log.
    repairs: Sequence[Repair] = ()

    def stands(self, place: int) -> bool:
        """Return whether a line still counts: nothing ended it, and no Xid 154 decides in its place."""
        return not self.is_decided(place) and self.find(place) is None

    def find(self, place: int) -> Ending | None:
        """Return the last thing that ended a line; None if nothing did."""
        verdict = judge_line(self.lines[place].text)
        if verdict is None or verdict.standing == "recovered":
            return None
        if ended := max(self._list_ends(place, verdict), key=lambda ending: ending.place, default=None):
            return ended
        return self.find(self._changes_of(verdict)[-1].place) if self.is_decided(place) else None

    def is_decided(self, place: int) -> bool:
        """Return whether the driver logged what this Xid's GPU needs: seconds later, or before it, so that nothing
        changed."""
        line, verdict = self.lines[place], judge_line(self.lines[place].text)
        if verdict is None or verdict.number in (0, RECOVERY) or verdict.standing not in ("unfit", "unknown"):
            return False
        changes = self._changes_of(verdict)
        later = bisect(changes, place, key=lambda change: change.place)
        needed = (
            later and changes[later - 1].needs.action != "none" and self._is_same_run(changes[later - 1].place, place)
        ) and not self._find_repair(verdict, self.lines[changes[later - 1].place].at, line.at)
        followed = later < len(changes) and self.lines[changes[later].place].at - line.at <= WITHIN
        if not needed and not followed:
            return False
        last = changes[-1]
        return verdict.action in OF_DRIVER or (last.needs.action != "none" and self.find(last.place) is None)

    def _changes_of(self, verdict: Verdict) -> Sequence[Change]:
        return self.changes.get(verdict.device.lower().removesuffix(".0"), ())

    def _is_same_run(self, earlier: int, later: int) -> bool:
        """Return whether neither a reset nor a boot is between two lines."""
        booted = self.lines[earlier].at < self.boot <= self.lines[later].at
        return not booted and not earlier < self.reset <= later

    def _list_ends(self, place: int, verdict: Verdict) -> Iterator[Ending]:
        changes = self._changes_of(verdict)
        if changes and changes[-1].place > place:
            well = changes[-1].needs.action == "none"
            if verdict.number == RECOVERY or (well and verdict.action in ("reset", "reboot")):
                needs = "nothing" if well else "something else"
                yield self._end(changes[-1].place, f"after which the driver said that the GPU needs {needs}")
        if verdict.action in ("reset", "reboot") and self.lines[place].at < self.boot:
            yield Ending(-1, "restarted", self.boot)
        if verdict.action == "reset" and (repair := self._find_repair(verdict, self.lines[place].at)):
            yield Ending(-1, "reset", repair.at)
        switch = SXID.match(self.lines[place].text)
        reset = self.switches.get(switch[2].lower(), -1) if switch else self.reset
        if verdict.action == "reset" and reset > place:
            yield self._end(reset, "reset")
        recovered = self.recovered.get((verdict.key, verdict.device), -1)
        if recovered > place:
            yield self._end(recovered, "after which it recovered")

    def _find_repair(self, verdict: Verdict, after: float, before: float = inf) -> Repair | None:
        """Return the last reset by gpuprov of the line's GPU between two times. A line about a switch, or without a
        GPU, is of all."""
        address = verdict.device.lower().removesuffix(".0") if verdict.check != "sxid" else ""
        of_gpu = (repair for repair in self.repairs if after <= repair.at <= before and _has(repair, address))
        return max(of_gpu, key=lambda repair: repair.at, default=None)

    def _end(self, place: int, words: str) -> Ending:
        return Ending(place, words, self.lines[place].at)


def find_endings(log: KernelLog) -> Endings:
    """Find them in a log."""
    switches_found: dict[int, str] = {}
    changes: dict[str, list[Change]] = {}
    recovered: dict[tuple[str, str], int] = {}
    for place, line in enumerate(log.lines):
        verdict = judge_line(line.text)
        if verdict is None:
            continue
        if verdict.number == RECOVERY and verdict.check == "xid":
            change = Change(place, get_recovery(recovery_word(verdict.text)))
            changes.setdefault(verdict.device, []).append(change)
        if "reset" in verdict.ends and verdict.device:
            switches_found[place] = verdict.device.lower()
        recovered.update(((key, verdict.device), place) for key in verdict.clears)
    switches = {address: place for place, address in switches_found.items()}
    reset = _find_last_reset((place, log.lines[place].at, address) for place, address in switches_found.items())
    return Endings(log.lines, log.booted(), reset, switches, changes, recovered, log.resets)


def _has(repair: Repair, address: str) -> bool:
    return not repair.gpus or address in (gpu.lower().removesuffix(".0") for gpu in repair.gpus)


def _find_last_reset(discoveries: Iterable[tuple[int, float, str]]) -> int:
    """Return the place at which the driver found the first switch after the last reset: it finds one after the other,
    each once."""
    begin, last, seen = -1, 0.0, set[str]()
    for place, at, address in discoveries:
        if begin < 0 or address in seen or at - last > APART:
            begin, seen = place, set()
        seen.add(address)
        last = at
    return begin
