"""Checks of the kernel log: Xids, SXids, and how far it reaches back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from gpuprov.capabilities.base import Outcome, check, fail, ok, skip
from gpuprov.capabilities.health.fragment import Ctx
from gpuprov.capabilities.health.past import WITHIN, Change, find_endings, moment
from gpuprov.catalog.verdicts import Verdict, fix_of, judge_line, judge_sxid, judge_xid
from gpuprov.catalog.xids import RECOVERY, SEVERITY, XID, Action
from gpuprov.probe.base import NotRecorded, ProbeFailed
from gpuprov.probe.host import system
from gpuprov.probe.kernel.kernel_log import KERNEL_LOG, Event, KernelLog, Line, sxids, xids
from gpuprov.shown import counted

XIDS = "journalctl -k -b | grep -E 'NVRM: Xid'"
SHOWN = 4


class Judged(NamedTuple):
    """An Xid or SXid with its verdict."""

    event: Event
    verdict: Verdict

    @property
    def action(self) -> Action:
        return self.verdict.action

    def told(self) -> str:
        one = self.event
        kind = "SXid" if one.switch else "Xid"
        times = f", {one.count} times, last" if one.count > 1 else ","
        said = f' ("{one.text[:90]}")' if one.text else ""
        return f"{kind} {one.number} on {one.device}{times} {moment(one.at)}{said}: {self.verdict.words}"


class Finding(NamedTuple):
    """The lines about one device that one entry of the catalogue judges."""

    verdict: Verdict
    lines: tuple[Line, ...]

    def __str__(self) -> str:
        return quoted(self.lines)


def quoted(lines: Sequence[Line]) -> str:
    """Return the last of these lines, and their number."""
    last = lines[-1]
    return f'{counted(sum(one.times for one in lines), "line")}, last {moment(last.at)}: "{last.text[:160]}"'


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
    return f"since {moment(late if late is not None else log.begins())}"


def judge(event: Event) -> Judged:
    """Return the verdict on an event."""
    of = judge_sxid if event.switch else judge_xid
    return Judged(event, of(event.number, event.text, event.device))


def findings(log: KernelLog, check: str) -> list[Finding]:
    """Return what stands of the lines that a check counts, the most severe first: without those that a boot, a reset or a later line
    has ended."""
    standing: dict[tuple[str, str], Finding] = {}
    endings = find_endings(log)
    for line in log.lines:
        verdict = judge_line(line.text)
        if verdict is None or verdict.check != check:
            continue
        key = verdict.key, verdict.device
        if verdict.standing == "recovered":
            standing = {
                one: found for one, found in standing.items() if one[0] not in verdict.clears or one[1] != key[1]
            }
        elif line.at > endings.last(verdict.action, verdict.device):
            before = standing[key].lines if key in standing else ()
            standing[key] = Finding(verdict, (*before, line))
    return sorted(standing.values(), key=lambda one: (-SEVERITY.index(one.verdict.action), -one.lines[-1].at))


def unfit(found: Iterable[Finding]) -> list[Finding]:
    return [one for one in found if one.verdict.standing == "unfit"]


def reported(found: Iterable[Finding]) -> str:
    """Return the findings that fail nothing, in words that follow others."""
    those = [one for one in found if one.verdict.standing == "reported"]
    more = f"; and {len(those) - SHOWN} more" if len(those) > SHOWN else ""
    listed = "; ".join(f"{one.verdict.key}: {one}" for one in those[:SHOWN])
    return f"; told: {listed}{more}" if those else ""


def failed(expected: str, bad: Sequence[Finding], told: str = "") -> Outcome:
    """Return a failure: the findings of the most severe action, and what is to be done about the first."""
    worst = [one for one in bad if one.verdict.action == bad[0].verdict.action]
    more = f"; and {len(bad) - SHOWN} more" if len(bad) > SHOWN else ""
    listed = "; ".join(map(str, (*worst, *(one for one in bad if one not in worst))[:SHOWN]))
    return fail(expected, f"{listed}{more}{told}", fix_of(bad[0].verdict), action=bad[0].verdict.action)


def standing(log: KernelLog, ignored: Iterable[int] = ()) -> list[Judged]:
    """Return the Xids that still matter, the most severe first: of those that a reset or a reboot fixes, the ones since then; if the
    driver logged in an Xid 154 what the GPU needs, only that Xid 154."""
    left, endings = set(ignored), find_endings(log)
    fresh = endings.reset
    own = tuple(line for line in log.lines if not _decided(line, endings.changes, fresh))
    found = [judge(event) for event in xids(msgspec.structs.replace(log, lines=own)) if event.number not in left]
    return severe(one for one in found if one.event.at > endings.last(one.action, one.event.device))


def past(log: KernelLog, ignored: Iterable[int] = ()) -> str:
    """Return the Xids that asked for a reset or a restart that was done since, in words that follow others."""
    endings, left = find_endings(log), {RECOVERY, *ignored}
    done = [
        f"Xid {one.event.number} on {one.event.device} {moment(one.event.at)}, {ended}"
        for one in severe(judge(event) for event in xids(log) if event.number not in left)
        if one.verdict.standing == "unfit" and (ended := endings.describe(one.action, one.event.device, one.event.at))
    ]
    more = f"; and {len(done) - SHOWN} more" if len(done) > SHOWN else ""
    return f"; past: {'; '.join(done[:SHOWN])}{more}" if done else ""


def _decided(line: Line, changes: Mapping[str, Sequence[Change]], fresh: float) -> bool:
    """Return whether the driver logged what this Xid's GPU needs: seconds later, or before it, so that nothing changed. `fresh`: the
    time of the GPUs' last reset or boot."""
    match = XID.match(line.text)
    if match is None or int(match[2]) == RECOVERY:
        return False
    of_gpu = changes.get(match[1].lower(), ())
    before = [change for change in of_gpu if change.at < line.at and (change.at > fresh or line.at <= fresh)]
    if before and before[-1].needs.action != "none":
        return _is_severe(line)
    return any(0 <= change.at - line.at <= WITHIN for change in of_gpu) and _is_severe(line)


def _is_severe(line: Line) -> bool:
    """Return whether an Xid asks for more than the restart of a program, which is reported in any case, or has no known action."""
    verdict = judge_line(line.text)
    return verdict is not None and verdict.standing in ("unfit", "unknown")


def severe(found: Iterable[Judged]) -> list[Judged]:
    return sorted(found, key=lambda one: (-SEVERITY.index(one.action), -one.event.at))


def listed(found: Sequence[Judged]) -> str:
    more = f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return "; ".join(one.told() for one in found[:SHOWN]) + more


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
    if late is not None and not ctx.facts.get(system.CONTAINER):
        return skip(
            f"{log.source} begins at {moment(late)}: what was said before, since {moment(log.begins())}, is not known"
        )
    return ok(f"{log.source}, {span(log)}")


@check("health.xid", KERNEL_LOG, fields=("since", "ignored_xids"), evidence=XIDS)
def xid(ctx: Ctx) -> Outcome:
    """There is no Xid in the kernel log after which NVIDIA wants the GPU reset, the host restarted or drained, or other software."""
    log = readable(ctx, of_nvidia=True)
    found = standing(log, ctx.fragment.ignored_xids)
    if bad := [one for one in found if one.verdict.standing == "unfit"]:
        return fail("no Xid that asks for it", listed(bad), fix_of(bad[0].verdict), action=bad[0].action)
    if unknown := [one for one in found if one.verdict.standing == "unknown"]:
        return skip(listed(unknown))
    quiet = sorted({one.number for one in xids(log)})
    told = f"; told and let pass: Xid {', '.join(map(str, quiet))}" if quiet else ""
    return ok(f"none {span(log)}{told}{past(log, ctx.fragment.ignored_xids)}", "no Xid that asks for it")


@check("health.driver_log", KERNEL_LOG, fields=("since",), evidence="journalctl -k -b | grep NVRM")
def driver_log(ctx: Ctx) -> Outcome:
    """The driver reports of no GPU, apart from Xids, that it fell off the bus or must be reset, and no fault that only a restart of
    the host ends."""
    log = readable(ctx, of_nvidia=True)
    expected = "no GPU off the bus, and nothing that asks for a reset or a restart"
    found = findings(log, "driver_log")
    if bad := unfit(found):
        return failed(expected, bad)
    return ok(f"none {span(log)}{reported(found)}", expected)


@check("health.programs", KERNEL_LOG, fields=("since", "program_errors"), evidence=XIDS)
def programs(ctx: Ctx) -> Outcome:
    """There was no Xid that requires the restart of a program, no crash in NCCL, and no program killed for lack of memory; with tell
    they are only reported."""
    log = readable(ctx)
    found = [one for one in standing(log, ctx.fragment.ignored_xids) if one.action == "restart"]
    expected = "no program ended by its GPU, in NCCL or for want of memory"
    ended = [line for one in findings(log, "programs") if not one.verdict.number for line in one.lines]
    last = max(ended, key=lambda line: line.at, default=None)
    said = f'{len(ended)} ended otherwise, last {moment(last.at)}: "{last.text[:120]}"' if last else ""
    told = "; ".join(filter(None, (listed(found), said)))
    if not told:
        return ok(f"none {span(log)}", expected)
    if ctx.fragment.program_errors == "tell":
        return ok(f"told only: {told}", expected, action="restart")
    hint = fix_of(found[0].verdict) if found else "restart the program; its own log says more"
    return fail(expected, told, hint, action="restart")


@check("health.sxid", KERNEL_LOG, fields=("since",), evidence="journalctl -k -b | grep -E 'nvidia-nvswitch.*SXid'")
def sxid(ctx: Ctx) -> Outcome:
    """There is no fatal SXid of an NVSwitch in the kernel log."""
    log = readable(ctx, of_nvidia=True)
    endings = find_endings(log)
    found = [one for one in map(judge, sxids(log)) if one.event.at > endings.last(one.action)]
    bad = severe(one for one in found if one.action != "none")
    if bad:
        return fail(
            "no fatal SXid", listed(bad), f"{bad[0].verdict.words}; /var/log/fabricmanager.log", action=bad[0].action
        )
    told = f"; {len(found)} that are not fatal" if found else ""
    return ok(f"none {span(log)}{told}", "no fatal SXid")


CHECKS = (kernel_log, xid, driver_log, programs, sxid)
