"""Checks of the kernel log: Xids, SXids, and how far it reaches back."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from gpuprov.capabilities.base import Outcome, check, fail, ok, skip
from gpuprov.capabilities.health.fragment import Ctx
from gpuprov.capabilities.health.past import Ending, find_endings, is_untimed, moment
from gpuprov.capabilities.health.rack import with_errors
from gpuprov.capabilities.health.reported import concern
from gpuprov.catalog.verdicts import Verdict, fix_of, judge_line, judge_sxid, judge_xid
from gpuprov.catalog.xids import RECOVERY, SEVERITY, Action
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.base import NotRecorded, ProbeFailed
from gpuprov.facts.probes.gpus.fabric import STATE
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.kernel.kernel_log import KERNEL_LOG, Event, KernelLog, Line, sxids, xids

XIDS = "journalctl -k -b | grep -E 'NVRM: Xid'"
SHOWN = 4


class Judged(NamedTuple):
    """An Xid or SXid with its verdict."""

    event: Event
    verdict: Verdict

    @property
    def action(self) -> Action:
        return self.verdict.action

    def describe(self) -> str:
        event = self.event
        kind = "SXid" if event.switch else "Xid"
        times = f", {event.count} times, last" if event.count > 1 else ","
        quote = f' ("{event.text[:90]}")' if event.text else ""
        return f"{kind} {event.number} on {event.device}{times} {moment(event.at)}{quote}: {self.verdict.words}"


class Finding(NamedTuple):
    """The lines about one device that one entry of the catalogue judges."""

    verdict: Verdict
    lines: tuple[Line, ...]

    def __str__(self) -> str:
        return quoted(self.lines)


def quoted(lines: Sequence[Line]) -> str:
    """Return the last of these lines, and their number."""
    last = lines[-1]
    return f'{counted(sum(line.times for line in lines), "line")}, last {moment(last.at)}: "{last.text[:160]}"'


ONLY_NVIDIA = "the record has but NVIDIA's lines of the kernel log"


def readable(ctx: Ctx, *, of_nvidia: bool = False) -> KernelLog:
    """Return the log. Raises ProbeFailed if there is none to read. `of_nvidia`: NVIDIA's lines are enough."""
    log: KernelLog = ctx.facts.get(KERNEL_LOG)
    if log.searched and not of_nvidia:
        raise NotRecorded(ONLY_NVIDIA)
    if not log.source:
        raise ProbeFailed("the kernel log cannot be read: neither the journal nor dmesg says anything", "run as root")
    return log


def span(log: KernelLog) -> str:
    """Return the time at which the log begins, in words."""
    late = log.missing()
    if is_untimed(late or 0):
        return "in a log without times"
    return f"since {moment(late if late is not None else log.begins())}"


def judge(event: Event) -> Judged:
    """Return the verdict on an event."""
    of = judge_sxid if event.switch else judge_xid
    return Judged(event, of(event.number, event.text, event.device))


def findings(log: KernelLog, check: str) -> list[Finding]:
    """Return what stands of the lines that a check counts, the most severe first: without those that a boot, a reset or
    a later line has ended."""
    standing: dict[tuple[str, str], Finding] = {}
    endings = find_endings(log)
    for place, line in enumerate(log.lines):
        verdict = judge_line(line.text)
        if verdict is None or verdict.check != check or verdict.standing == "recovered" or not endings.stands(place):
            continue
        key = verdict.key, verdict.device
        before = standing[key].lines if key in standing else ()
        standing[key] = Finding(verdict, (*before, line))
    return sorted(
        standing.values(), key=lambda finding: (-SEVERITY.index(finding.verdict.action), -finding.lines[-1].at)
    )


def unfit(matched: Iterable[Finding]) -> list[Finding]:
    return [finding for finding in matched if finding.verdict.standing == "unfit"]


def reported(matched: Iterable[Finding]) -> str:
    """Return the findings that fail nothing, in words that follow others."""
    those = [finding for finding in matched if finding.verdict.standing == "reported"]
    more = f"; and {len(those) - SHOWN} more" if len(those) > SHOWN else ""
    listed = "; ".join(f"{finding.verdict.key}: {finding}" for finding in those[:SHOWN])
    return f"; noted: {listed}{more}" if those else ""


def failed(expected: str, bad: Sequence[Finding], suffix: str = "") -> Outcome:
    """Return a failure: the findings of the most severe action, and what is to be done about the first."""
    worst = [finding for finding in bad if finding.verdict.action == bad[0].verdict.action]
    more = f"; and {len(bad) - SHOWN} more" if len(bad) > SHOWN else ""
    listed = "; ".join(map(str, (*worst, *(finding for finding in bad if finding not in worst))[:SHOWN]))
    outcome = fail(expected, f"{listed}{more}{suffix}", fix_of(bad[0].verdict), action=bad[0].verdict.action)
    devices = [finding.verdict.device for finding in bad]
    return concern(outcome, devices if all(devices) else ())


def keep(log: KernelLog, is_kept: Callable[[int], bool]) -> KernelLog:
    """Return a log with only some of its lines, chosen by their places."""
    lines = tuple(line for place, line in enumerate(log.lines) if is_kept(place))
    return msgspec.structs.replace(log, lines=lines)


def standing(log: KernelLog, ignored: Iterable[int] = ()) -> list[Judged]:
    """Return the Xids that still matter, the most severe first: those that nothing has ended since; if the driver
    logged in an Xid 154 what the GPU needs, only that Xid 154."""
    left, own = set(ignored), keep(log, find_endings(log).stands)
    return severe(judge(event) for event in xids(own) if event.number not in left)


class Past(NamedTuple):
    """A line that asked for something which was done since."""

    verdict: Verdict
    line: Line
    ending: Ending

    def __str__(self) -> str:
        kind = "SXid" if self.verdict.check == "sxid" else "Xid"
        name = f"{kind} {self.verdict.number}" if self.verdict.number else self.verdict.key
        device = f" on {self.verdict.device}" if self.verdict.device else ""
        return f"{name}{device} {moment(self.line.at)}, {self.ending}"


def list_past(log: KernelLog, check: str, ignored: Iterable[int] = ()) -> list[Past]:
    """List those that a check counts, the most severe first; of an Xid 154 that a later one replaced, the later one
    says all."""
    endings, left = find_endings(log), set(ignored)
    done: dict[tuple[str, int, str], Past] = {}
    for place, line in enumerate(log.lines):
        verdict = judge_line(line.text)
        if verdict is None or verdict.check != check or verdict.standing != "unfit" or verdict.number in left:
            continue
        ending = endings.find(place)
        if ending and not (verdict.number == RECOVERY and ending.words not in ("reset", "restarted")):
            done[verdict.device, verdict.number, verdict.action] = Past(verdict, line, ending)
    return sorted(done.values(), key=lambda past: (-SEVERITY.index(past.verdict.action), -past.line.at))


def describe_past(those: Sequence[Past]) -> str:
    """Return them in words that follow others."""
    more = f"; and {len(those) - SHOWN} more" if len(those) > SHOWN else ""
    return f"; past: {'; '.join(map(str, those[:SHOWN]))}{more}" if those else ""


def severe(entries: Iterable[Judged]) -> list[Judged]:
    return sorted(entries, key=lambda entry: (-SEVERITY.index(entry.action), -entry.event.at))


def listed(entries: Sequence[Judged]) -> str:
    more = f"; and {len(entries) - SHOWN} more" if len(entries) > SHOWN else ""
    return "; ".join(entry.describe() for entry in entries[:SHOWN]) + more


@check("health.kernel_log", KERNEL_LOG, system.CONTAINER, fields=("since",), evidence="journalctl -k -b | head -n 1")
def kernel_log(ctx: Ctx) -> Outcome:
    """The kernel log can be read, and covers the whole period that is judged."""
    log: KernelLog = ctx.facts.get(KERNEL_LOG)
    if not log.source:
        return fail(
            "a kernel log",
            "neither the journal nor dmesg says anything",
            "run as root; systemctl status systemd-journald",
        )
    if log.searched:
        return skip(ONLY_NVIDIA)
    late = log.missing()
    if is_untimed(late or 0):
        return skip(
            f"{log.source} without times: the order of its lines is known, not how old they are, nor what was said "
            "before"
        )
    if late is not None and not ctx.facts.get(system.CONTAINER):
        return skip(
            f"{log.source} begins at {moment(late)}: what was said before, since {moment(log.begins())}, is not known"
        )
    return ok(f"{log.source}, {span(log)}")


@check("health.xid", KERNEL_LOG, STATE, fields=("since", "ignored_xids"), evidence=XIDS)
def xid(ctx: Ctx) -> Outcome:
    """There is no Xid in the kernel log after which NVIDIA wants the GPU reset, the host restarted or drained, or other
    software."""
    log = readable(ctx, of_nvidia=True)
    return with_errors(ctx, _judge_xids(ctx, log), log)


def _judge_xids(ctx: Ctx, log: KernelLog) -> Outcome:
    entries = standing(log, ctx.fragment.ignored_xids)
    if bad := [entry for entry in entries if entry.verdict.standing == "unfit"]:
        outcome = fail("no Xid that asks for it", listed(bad), fix_of(bad[0].verdict), action=bad[0].action)
        return concern(outcome, (entry.event.device for entry in bad))
    if unknown := [entry for entry in entries if entry.verdict.standing == "unknown"]:
        return skip(listed(unknown))
    ignored, endings = ctx.fragment.ignored_xids, find_endings(log)
    own = {event.number for event in xids(keep(log, lambda place: endings.find(place) is None))}
    quiet = sorted(own | ({event.number for event in xids(log)} & set(ignored)))
    suffix = f"; noted and let pass: Xid {', '.join(map(str, quiet))}" if quiet else ""
    past = describe_past(list_past(log, "xid", ignored))
    return ok(f"none {span(log)}{suffix}{past}", "no Xid that asks for it")


@check("health.driver_log", KERNEL_LOG, fields=("since",), evidence="journalctl -k -b | grep NVRM")
def driver_log(ctx: Ctx) -> Outcome:
    """The driver reports of no GPU, apart from Xids, that it fell off the bus or must be reset, and no fault that only
    a restart of the host ends."""
    log = readable(ctx, of_nvidia=True)
    expected = "no GPU off the bus, and nothing that asks for a reset or a restart"
    matched = findings(log, "driver_log")
    if bad := unfit(matched):
        return failed(expected, bad)
    return ok(f"none {span(log)}{reported(matched)}{describe_past(list_past(log, 'driver_log'))}", expected)


@check("health.programs", KERNEL_LOG, fields=("since", "program_errors"), evidence=XIDS)
def programs(ctx: Ctx) -> Outcome:
    """There was no Xid that requires the restart of a program, no crash in NCCL, and no program killed for lack of
    memory; with tell they are only reported."""
    log = readable(ctx)
    entries = [entry for entry in standing(log, ctx.fragment.ignored_xids) if entry.action == "restart"]
    expected = "no program ended by its GPU, in NCCL or for want of memory"
    ended = [line for finding in findings(log, "programs") if not finding.verdict.number for line in finding.lines]
    last = max(ended, key=lambda line: line.at, default=None)
    rest = f'{len(ended)} ended otherwise, last {moment(last.at)}: "{last.text[:120]}"' if last else ""
    listing = "; ".join(filter(None, (listed(entries), rest)))
    if not listing:
        return ok(f"none {span(log)}", expected)
    if ctx.fragment.program_errors == "tell":
        return ok(f"reported only: {listing}", expected, action="restart")
    fix = fix_of(entries[0].verdict) if entries else "restart the program; its own log says more"
    return fail(expected, listing, fix, action="restart")


@check("health.sxid", KERNEL_LOG, fields=("since",), evidence="journalctl -k -b | grep -E 'nvidia-nvswitch.*SXid'")
def sxid(ctx: Ctx) -> Outcome:
    """There is no SXid of an NVSwitch in the kernel log that is fatal, or after which NVIDIA wants a reset or a
    restart."""
    log, expected = readable(ctx, of_nvidia=True), "no SXid that is fatal, or asks for a reset or a restart"
    entries = [judge(event) for event in sxids(keep(log, find_endings(log).stands))]
    bad = severe(entry for entry in entries if entry.action != "none")
    if bad:
        fix = f"{bad[0].verdict.words}; /var/log/fabricmanager.log"
        return fail(expected, listed(bad), fix, action=bad[0].action)
    suffix = f"; {len(entries)} that ask for nothing" if entries else ""
    return ok(f"none {span(log)}{suffix}{describe_past(list_past(log, 'sxid'))}", expected)


CHECKS = (kernel_log, xid, driver_log, programs, sxid)
