"""`gpuprov health --reset-done`: record a reset that somebody else has done, where the kernel logs none: Xids before it
are past."""

import re
import time
from collections.abc import Sequence
from typing import NamedTuple

from gpuprov.capabilities.health.past import find_endings, moment
from gpuprov.catalog.verdicts import Verdict, judge_line
from gpuprov.core.errors import CODES, GpuprovError, UnreachableError
from gpuprov.facts.probes.base import Facts, ProbeFailed
from gpuprov.facts.probes.gpus.gpu_settings import normalize_address
from gpuprov.facts.probes.kernel.kernel_log import KERNEL_LOG, KernelLog, seconds
from gpuprov.host_code.locked import explain_refusal
from gpuprov.repair.hosts import Hosts, Judged
from gpuprov.repair.model import Gpu, HostPlan, Scope
from gpuprov.verify.evaluate import Result

ALLOWED = "allowed: now, a span since then (10m, 2h, 1d) or a time (2026-11-20T14:02), not in the future"
ADDRESS = r"([0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}(\.[0-7])?"
NOTHING = "gpuprov health says what it asks for; what asks for no reset needs no record of one"


class LockedError(GpuprovError):
    """Another run works on the host."""

    exit_code = CODES["locked"]


class Mark(NamedTuple):
    """A reset to be recorded."""

    # By the host's clock.
    at: float
    # PCI addresses, empty for all.
    gpus: tuple[str, ...]
    # What it ends.
    findings: tuple[Result, ...]


def resolve_time(text: str, now: float) -> float:
    """Return a time of the command line in Unix time. Raises ValueError."""
    if text == "boot":
        raise ValueError("a boot ends what a reset ends, and needs no record")
    if text == "now":
        return now
    try:
        given = seconds(text, now)
    except ValueError as error:
        raise ValueError("that is in the future" if "future" in str(error) else "that is no time") from error
    return float(given[1:]) if given.startswith("@") else now + float(given)


def check_request(text: str, gpus: Sequence[str]) -> None:
    """Raise GpuprovError if a time is none, or is in the future of this machine's clock, or an address is none."""
    if strange := [gpu for gpu in gpus if not re.fullmatch(ADDRESS, gpu.strip(), re.IGNORECASE)]:
        raise GpuprovError(
            f'--reset-gpu "{strange[0][:60]}": that is not a PCI address', "as health shows it: 0000:19:00.0"
        )
    try:
        resolve_time(text, time.time())
    except ValueError as error:
        raise GpuprovError(f'--reset-done "{text}": {error}', ALLOWED) from error


def record_resets(names: Sequence[str], hosts: Hosts, text: str, gpus: Sequence[str] = ()) -> dict[str, Mark]:
    """Record the reset on each of these hosts; on none before it can be recorded for all. Raises GpuprovError with the
    reason why it cannot, or could not be written on one of them."""
    judged = hosts.judge(names)
    marks = {name: plan_mark(name, judged[name], text, gpus) for name in names}
    for name, mark in marks.items():
        scope = Scope(gpus=tuple(Gpu(index=-1, address=address) for address in mark.gpus), whole=not mark.gpus)
        plan = HostPlan(host=name, step="reset", findings=mark.findings, scope=scope)
        answer = hosts.act("mark", plan, at=mark.at)
        if answer.locked is not None:
            why, _ = explain_refusal(answer.locked, (), "record it with")
            raise LockedError(f"{name}: {why}", "record it again when the other run has ended")
        if answer.problem:
            raise GpuprovError(f"{name}: the reset is not recorded: {answer.problem}")
    return marks


def plan_mark(name: str, judged: Judged, text: str, gpus: Sequence[str] = ()) -> Mark:
    """Return what would be recorded on a host. Raises GpuprovError if a reset at that time ends nothing, or not all."""
    results, facts = judged
    log = _read_log(name, results, facts)
    try:
        at = resolve_time(text, log.now)
    except ValueError as error:
        raise GpuprovError(f'{name}: --reset-done "{text}", by the clock of this host: {error}', ALLOWED) from error
    asking = [result for result in results if result.status == "fail" and result.action == "reset"]
    chosen = _choose_gpus(name, asking, gpus)
    asking = [result for result in asking if not chosen or {*result.devices} & {*chosen}]
    if not asking:
        raise GpuprovError(f"{name}: no check of health asks for a reset, so that none can be recorded", NOTHING)
    _refuse_what_stays(name, asking, log, at, chosen)
    return Mark(at, chosen, tuple(asking))


def _read_log(name: str, results: Sequence[Result], facts: Facts | None) -> KernelLog:
    unreached = next((result for result in results if result.status == "unreachable"), None)
    if unreached or facts is None:
        raise UnreachableError(f"{name}: {unreached.found if unreached else 'it was not read'}; nothing is recorded")
    try:
        log: KernelLog = facts.get(KERNEL_LOG)
    except ProbeFailed as error:
        raise GpuprovError(f"{name}: the kernel log cannot be read: {error}", error.fix) from error
    return log


def _choose_gpus(name: str, asking: Sequence[Result], gpus: Sequence[str]) -> tuple[str, ...]:
    """Return the addresses that a reset is recorded for; none where it is of the whole host: a finding of the fabric,
    or one that names no GPU. Raises GpuprovError for a GPU that nothing asks a reset of."""
    named = dict.fromkeys(address for result in asking for address in result.devices)
    given = [_complete(address) for address in gpus]
    if strange := [address for address in given if address not in named]:
        allowed = f"allowed: {', '.join(named)}" if named else NOTHING
        raise GpuprovError(f"{name}: no check of health asks for a reset of {strange[0]}", allowed)
    whole = any(not result.devices or result.check == "health.sxid" for result in asking)
    return tuple(given) if given else () if whole else tuple(named)


def _complete(address: str) -> str:
    text = normalize_address(address.strip())
    text = text if text.count(":") > 1 else f"0000:{text}"
    return text if "." in text else f"{text}.0"


def _refuse_what_stays(name: str, asking: Sequence[Result], log: KernelLog, at: float, chosen: tuple[str, ...]) -> None:
    """Raise GpuprovError for what a record of a reset at that time does not end: what the GPU itself reports still, and
    lines after it."""
    endings = find_endings(log)
    standing = [
        (line.at, verdict)
        for place, line in enumerate(log.lines)
        if (verdict := judge_line(line.text)) and verdict.action == "reset" and endings.stands(place)
    ]
    logged = {f"health.{verdict.check}" for _, verdict in standing}
    if still := [result for result in asking if result.check not in logged]:
        first = still[0]
        raise GpuprovError(
            f"{name}: {first.check} does not go by the log: the host reports it still ({first.found[:160]})",
            "a reset would have ended it: reset the GPU, or gpuprov repair",
        )
    for line_at, verdict in standing:
        if line_at > at and _is_of(verdict, chosen):
            what = f"Xid {verdict.number}" if verdict.number else verdict.key
            raise GpuprovError(
                f"{name}: {what} on {verdict.device or 'this host'} came at {moment(line_at)}, after a reset at "
                f"{moment(at)}",
                "give the time of a reset after it, or reset the GPU",
            )


def _is_of(verdict: Verdict, chosen: tuple[str, ...]) -> bool:
    return not chosen or not verdict.device or _complete(verdict.device) in chosen
