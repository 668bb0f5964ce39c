"""Checks of the kernel log: Xids, SXids, and how far it reaches back."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from gpuprov.capabilities.base import Outcome, check, fail, ok, skip
from gpuprov.capabilities.health.fragment import Ctx
from gpuprov.catalog import xids as catalogue
from gpuprov.catalog.xids import SEVERITY, Action, Recovery
from gpuprov.probe.base import NotRecorded, ProbeFailed
from gpuprov.probe.host import system
from gpuprov.probe.kernel.kernel_log import (
    KERNEL_LOG,
    OFF_BUS,
    REBOOT_REQUIRED,
    RESET_REQUIRED,
    XID,
    Event,
    KernelLog,
    Line,
    last_reset,
    sxids,
    xids,
)

XIDS = "journalctl -k -b | grep -E 'NVRM: Xid'"
SHOWN = 4

RECOVERY, OFF_THE_BUS = 154, 79
WITHIN = 30.0
"""Seconds within which the driver follows an Xid with what the GPU needs: it does so at once, in a work item of its own
(gpuRefreshRecoveryAction, https://github.com/NVIDIA/open-gpu-kernel-modules/blob/595.45.04/src/nvidia/src/kernel/gpu/gpu.c)."""


class Change(NamedTuple):
    """A change in the recovery action that a GPU needs, which the driver logs as Xid 154."""

    at: float
    needs: Recovery


def recovery_word(text: str) -> str:
    """Return the driver's word for what the GPU needs now, from the text of an Xid 154; empty if it has none."""
    match = re.search(r"to 0x[0-9a-fA-F]+ \(([^)]{0,200})\)", text)
    return match[1] if match else ""


def recovery_changes(log: KernelLog) -> dict[str, list[Change]]:
    """Return the changes of each GPU, oldest first."""
    found: dict[str, list[Change]] = {}
    for line in log.lines:
        match = XID.match(line.text)
        if match and int(match[2]) == RECOVERY:
            change = Change(line.at, catalogue.recovery(recovery_word(match[3] or "")))
            found.setdefault(match[1].lower(), []).append(change)
    return found


ENDED = r".{1,15}\[\d+\]: segfault at .* in libnccl|(Memory cgroup out|Out) of memory: Kill|oom-kill:"
"""Programs that ended by a crash in NCCL, or because memory ran out."""


class Judged(NamedTuple):
    """An event with the action to take; `named`: the action comes from a source. `fix`: what a person does, if the words do not
    suffice."""

    event: Event
    action: Action
    words: str
    named: bool = True
    fix: str = ""

    def told(self) -> str:
        one = self.event
        kind = "SXid" if one.switch else "Xid"
        times = f", {one.count} times, last" if one.count > 1 else ","
        said = f' ("{one.text[:90]}")' if one.text else ""
        return f"{kind} {one.number} on {one.device}{times} {moment(one.at)}{said}: {self.words}"


NO_CLOCK = 100_000_000
"""A time below this is not a clock time: dmesg in a record gives only seconds since the boot."""


def moment(at: float) -> str:
    if at < NO_CLOCK:
        return f"{at:.0f} s after the boot"
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")


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
    """Return the action to take after an Xid."""
    if event.number == RECOVERY:
        needs = catalogue.recovery(recovery_word(event.text))
        return Judged(event, needs.action, needs.words, fix=needs.fix)
    known = catalogue.find_xid(event.number)
    found = catalogue.resolution(catalogue.asks(event.number, event.text) or (known.nvidia if known else ""))
    if found is None:
        return Judged(event, "none", "NVIDIA's catalogue names nothing that is to be done", named=False)
    words = f"{found.key}, {found.words}" if found.named else found.words
    return Judged(event, found.action, words, named=found.named)


MENDED: tuple[Action, ...] = ("reset", "reboot")
"""Actions that a boot, or the driver's report that a GPU needs nothing any more, makes unnecessary."""


def standing(log: KernelLog, ignored: Iterable[int] = ()) -> list[Judged]:
    """Return the Xids that still matter, the most severe first: of those that a reset or a reboot fixes, the ones since then; if the
    driver logged in an Xid 154 what the GPU needs, only that Xid 154."""
    changes, left = recovery_changes(log), set(ignored)
    fresh = max(log.booted(), last_reset(log))
    own = msgspec.structs.replace(log, lines=tuple(line for line in log.lines if not _decided(line, changes, fresh)))
    well = {device: found[-1].at for device, found in changes.items() if found[-1].needs.action == "none"}
    found = [judge(event) for event in xids(own) if event.number not in left]
    return severe(one for one in found if one.event.at > _mended(log, one.action, well.get(one.event.device, 0.0)))


def _mended(log: KernelLog, action: Action, well: float = 0.0) -> float:
    """Return the time of the last event that made this action unnecessary."""
    if action not in MENDED:
        return -1.0
    return max(log.booted(), well, last_reset(log) if action == "reset" else 0.0)


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
    found = [judge(event) for event in xids(KernelLog(lines=(line,)))]
    return any(SEVERITY.index(one.action) > SEVERITY.index("restart") or not one.named for one in found)


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
    bad = [one for one in found if SEVERITY.index(one.action) > SEVERITY.index("restart")]
    if bad:
        top = bad[0]
        hint = f"{top.fix or top.words}; gpuprov explain {top.event.number}"
        return fail("no Xid that asks for it", listed(bad), hint, action=top.action)
    if unknown := [one for one in found if not one.named]:
        return skip(listed(unknown))
    quiet = sorted({one.number for one in xids(log)})
    told = f"; told and let pass: Xid {', '.join(map(str, quiet))}" if quiet else ""
    return ok(f"none {span(log)}{told}", "no Xid that asks for it")


@check("health.driver_log", KERNEL_LOG, fields=("since",), evidence="journalctl -k -b | grep NVRM")
def driver_log(ctx: Ctx) -> Outcome:
    """The driver reports of no GPU, apart from Xids, that it fell off the bus or must be reset, and no fault that only a restart of
    the host ends."""
    log = readable(ctx, of_nvidia=True)
    expected = "no GPU off the bus, and nothing that asks for a reset or a restart"
    lost = judge(Event(device="", number=OFF_THE_BUS, count=1, at=0.0, text=""))
    if gone := [line for line in _beside_xids(log, OFF_BUS) if line.at > _mended(log, lost.action)]:
        return fail(expected, _quoted(gone), f"{lost.words}; gpuprov explain {OFF_THE_BUS}", action=lost.action)
    reboot = catalogue.recovery("Reboot")
    for key, pattern in REBOOT_REQUIRED.items():
        if stuck := [line for line in _beside_xids(log, pattern) if line.at > _mended(log, reboot.action)]:
            return fail(expected, _quoted(stuck), f"{reboot.fix}; gpuprov explain {key}", action=reboot.action)
    reset = catalogue.recovery("Reset")
    if refused := [line for line in _beside_xids(log, RESET_REQUIRED) if line.at > _mended(log, reset.action)]:
        return fail(expected, _quoted(refused), reset.fix or reset.words, action=reset.action)
    return ok(f"none {span(log)}", expected)


def _beside_xids(log: KernelLog, pattern: str) -> list[Line]:
    return [line for line in log.matching(pattern) if not XID.match(line.text)]


def _quoted(lines: Sequence[Line]) -> str:
    return f'{sum(line.times for line in lines)} times, last {moment(lines[-1].at)}: "{lines[-1].text[:160]}"'


@check("health.programs", KERNEL_LOG, fields=("since", "program_errors"), evidence=XIDS)
def programs(ctx: Ctx) -> Outcome:
    """There was no Xid that requires the restart of a program, no crash in NCCL, and no program killed for lack of memory; with tell
    they are only reported."""
    log = readable(ctx)
    found = [one for one in standing(log, ctx.fragment.ignored_xids) if one.action == "restart"]
    expected = "no program ended by its GPU, in NCCL or for want of memory"
    ended = log.crashes(ENDED)
    said = f'{len(ended)} ended otherwise, last {moment(ended[-1].at)}: "{ended[-1].text[:120]}"' if ended else ""
    told = "; ".join(filter(None, (listed(found), said)))
    if not told:
        return ok(f"none {span(log)}", expected)
    if ctx.fragment.program_errors == "tell":
        return ok(f"told only: {told}", expected, action="restart")
    hint = (
        f"{found[0].words}; gpuprov explain {found[0].event.number}"
        if found
        else "restart the program; its own log says more"
    )
    return fail(expected, told, hint, action="restart")


@check("health.sxid", KERNEL_LOG, fields=("since",), evidence="journalctl -k -b | grep -E 'nvidia-nvswitch.*SXid'")
def sxid(ctx: Ctx) -> Outcome:
    """There is no fatal SXid of an NVSwitch in the kernel log."""
    log = readable(ctx, of_nvidia=True)
    found = []
    for one in sxids(log):
        course = catalogue.sxid(one.number, fatal=one.text.lower().startswith("fatal"))
        if one.at > _mended(log, course.action):
            found.append(Judged(one, course.action, course.words))
    bad = severe(one for one in found if one.action != "none")
    if bad:
        return fail("no fatal SXid", listed(bad), f"{bad[0].words}; /var/log/fabricmanager.log", action=bad[0].action)
    told = f"; {len(found)} that are not fatal" if found else ""
    return ok(f"none {span(log)}{told}", "no fatal SXid")


CHECKS = (kernel_log, xid, driver_log, programs, sxid)
