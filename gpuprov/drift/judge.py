"""Drift of one host, from its results and facts. Pure."""

import re
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from gpuprov.core.fill import fill
from gpuprov.core.masking import masked
from gpuprov.drift.model import Cause, Difference, HostDrift, State
from gpuprov.facts.probes.base import Facts, Probe
from gpuprov.facts.probes.host import contents, house
from gpuprov.facts.probes.host.readings import READINGS, Noted, Readings
from gpuprov.facts.probes.software import history
from gpuprov.render import digests
from gpuprov.render.spec_digest import SPEC, is_changed
from gpuprov.spec.model import HostSpec
from gpuprov.verify.evaluate import FAILING, Result
from gpuprov.verify.unmanaged import find_unmanaged
from gpuprov.verify.verify import NextBoot, next_boot, verdict

# Probes beside those that the checks need.
PROBES: tuple[Probe[Any], ...] = (
    *(house.RECEIPT, house.MARKER, house.BOOT),
    *(history.HISTORY, READINGS, contents.CONTENTS),
)
# A version of a driver or a release of a kernel, in the actual value of a check.
VERSION = re.compile(r"\d{1,9}(?:\.\d{1,9})+(?:-\d[\w.]*(?:-[a-z]\w*)?)?")
# Number of commands that are named for one difference: the latest.
CLOSE = 3


def judge(
    spec: HostSpec,
    results: Sequence[Result],
    facts: Facts,
    *,
    only: Collection[str] | None = None,
    since: datetime | None = None,
) -> HostDrift:
    """Find what differs now from the spec, whether the spec or the host has changed since the last apply, and the
    causes."""
    receipt = facts.known(house.RECEIPT)
    changed = _find_changed(spec, receipt, only)
    log, boot = facts.known(history.HISTORY), next_boot(results).get(spec.name) or NextBoot("unknown")
    applied = _parse_applied(receipt)
    begin = since or applied.get("")
    kept = facts.known(READINGS)
    failing = [result for result in results if result.status in FAILING and result.moment != "preflight"]
    matches = [_match(result, log, kept, since or applied.get(result.capability, begin)) for result in failing]
    differences = []
    for result, match in zip(failing, matches, strict=True):
        causes = (*_group_events(match.events), *_group_readings(match.readings, applied.values()))
        differences.append(_build_difference(result, result.capability in changed, causes))
    minded = {(event.at, event.package) for match in matches for event in match.events}
    placed = [reading for match in matches for reading in match.readings]
    unplaced = [reading for reading in _select_readings(kept, begin) if reading not in placed and _is_change(reading)]
    return HostDrift(
        host=spec.name,
        state=_choose_state(results, receipt, changed, differences),
        applied_at=receipt.applied_at if receipt else "",
        applied_with=receipt.gpuprov_version if receipt else "",
        cut_off=bool(facts.known(house.MARKER)),
        next_boot=boot.verdict,
        next_boot_reasons=boot.reasons,
        spec_changed=changed,
        differences=tuple(differences),
        harmless=_count_harmless(log, begin, minded),
        noted=_group_readings(reading for reading in unplaced if not _is_across_apply(reading, applied.values())),
        unmanaged=find_unmanaged(spec, facts),
        why=f"the receipt is damaged ({receipt.damaged})" if receipt and receipt.damaged else "",
    )


class _Match(NamedTuple):
    """What was logged and noted on the host that a difference may come from."""

    events: Sequence[history.Event]
    readings: Sequence[Noted]


def _match(result: Result, log: history.History | None, kept: Readings | None, start: datetime | None) -> _Match:
    events = _match_events(result, _select_events(log, start))
    packages = {event.package for event in events}
    return _Match(events, _match_readings(result, _select_readings(kept, start), packages))


def _build_difference(result: Result, spec_changed: bool, causes: tuple[Cause, ...]) -> Difference:
    return fill(
        Difference,
        result,
        fix=result.fix,
        unread=result.status == "error",
        reboot_fixes=bool(result.reboot),
        spec_changed=spec_changed,
        causes=causes,
    )


def _count_harmless(
    log: history.History | None, begin: datetime | None, minded: Collection[tuple[datetime, str]]
) -> int | None:
    """Count the packages that changed after this time without a difference; None if that is not known."""
    if not log or not log.logs or not begin:
        return None
    return len({event.package for event in _select_events(log, begin) if (event.at, event.package) not in minded})


def _choose_state(
    results: Sequence[Result],
    receipt: house.Receipt | None,
    changed: Collection[str],
    differences: Sequence[Difference],
) -> State:
    if receipt is None or receipt.damaged or not receipt.capabilities:
        return "never applied" if receipt is None else "unknown"
    if any(not difference.spec_changed and not difference.unread for difference in differences):
        return "drifted"
    if changed:
        return "spec changed"
    return "unknown" if verdict(results) != "matches" else "as applied"


def _find_changed(spec: HostSpec, receipt: house.Receipt | None, only: Collection[str] | None) -> dict[str, str]:
    """Return, by capability, what has changed since its last apply."""
    if receipt is None or receipt.damaged:
        return {}
    changes: dict[str, str] = {}
    for name, present in digests(spec).items():
        if only is not None and name not in only:
            continue
        if (applied := receipt.capabilities.get(name)) is None:
            changes[name] = "never applied"
        elif is_changed(applied.digest, present):
            changes[name] = SPEC
    return changes


def _parse_applied(receipt: house.Receipt | None) -> dict[str, datetime]:
    """Return when each capability was last applied; under the empty name, when anything was."""
    texts = (
        {"": receipt.applied_at} | {name: capability.applied_at for name, capability in receipt.capabilities.items()}
        if receipt
        else {}
    )
    return {name: at for name, text in texts.items() if (at := _parse_time(text))}


def _select_events(log: history.History | None, begin: datetime | None) -> list[history.Event]:
    """List actions of package managers after this time."""
    return [event for event in log.events if begin is None or event.at > begin] if log else []


def _select_readings(kept: Readings | None, begin: datetime | None) -> list[Noted]:
    """List what may have changed after this time. A reading dated in the future was taken with a wrong clock."""
    if kept is None or begin is None:
        return list(kept.noted) if kept else []
    return [
        reading
        for reading in kept.noted
        if (reading.at or max((at for at in (reading.begin, reading.end) if at <= kept.clock), default=reading.end))
        > begin
    ]


def _is_across_apply(reading: Noted, applied: Iterable[datetime]) -> bool:
    """True if gpuprov applied something between its two readings, which may be what changed it."""
    return reading.at is None and any(reading.begin < at <= reading.end for at in applied)


def _match_events(result: Result, events: Iterable[history.Event]) -> list[history.Event]:
    """List events of packages that the check would change, or whose name, unit or version appears in its expected or
    actual value."""
    names = {change.name for change in result.changes if change.kind == "package"}
    text = f"{result.expected} {result.found}"
    versions = set(VERSION.findall(text))
    names |= _extract_packages(text)
    return [
        event
        for event in events
        if event.package in names or any(_matches_version(event, version) for version in versions)
    ]


def _extract_packages(text: str) -> set[str]:
    """Extract words that may be names of packages: units, and words with a digit or a hyphen; `file`, `mount` and
    `time` are packages, too."""
    words = re.findall(r"[a-z0-9][a-z0-9+._-]{2,}", text)
    return {word.removesuffix(".service") for word in words if re.search(r"[0-9-]|\.service\Z", word)}


def _matches_version(event: history.Event, version: str) -> bool:
    """True if the package has this version of a driver, or belongs to the kernel with this release."""
    upstream = (event.after or event.before).rpartition(":")[2].partition("-")[0]
    return upstream == version or ("-" in version and event.package.endswith(version))


def _group_events(events: Sequence[history.Event]) -> tuple[Cause, ...]:
    """Group the events by their command; the latest groups only."""
    commands: dict[tuple[str, str, str], list[history.Event]] = {}
    for event in events:
        day = f"{event.at:%Y-%m-%d}" if event.command else f"{event.at:%Y-%m-%d %H:%M}"
        commands.setdefault((event.command, event.user, day), []).append(event)
    return tuple(
        Cause(
            at=group[0].at.isoformat(timespec="minutes"),
            command=masked(group[0].command)[0],
            user=group[0].user,
            packages=tuple(dict.fromkeys(_format_event(event) for event in group)),
        )
        for group in list(commands.values())[-CLOSE:]
    )


def _match_readings(result: Result, noted: Iterable[Noted], logged: Collection[str]) -> list[Noted]:
    """List the host's own readings that concern a difference; packages only if no log names them."""
    text = f"{result.expected} {result.found} {result.fix}"
    versions = set(VERSION.findall(text))
    changes = {change.name.removesuffix(".service") for change in result.changes}
    words = {word.strip(".,:;()").removesuffix(".service") for word in text.split()}
    packages = _extract_packages(text)
    return [
        reading
        for reading in noted
        if not (reading.kind == "package" and reading.name in logged)
        and (
            reading.name.removesuffix(".service") in changes | (packages if reading.kind == "package" else words)
            or (reading.kind in ("module", "kernel") and {reading.before, reading.after} & versions)
        )
    ]


def _group_readings(noted: Iterable[Noted], applied: Collection[datetime] = ()) -> tuple[Cause, ...]:
    """Group readings into causes: each has the time at which a file was written, or the two readings between which it
    happened."""
    times: dict[tuple[str, str], list[Noted]] = {}
    for reading in noted:
        after = "" if reading.at else reading.begin.isoformat(timespec="minutes")
        times.setdefault(((reading.at or reading.end).isoformat(timespec="minutes"), after), []).append(reading)
    return tuple(
        Cause(
            at=at,
            after=after,
            spans_apply=_is_across_apply(group[0], applied),
            packages=tuple(_format_reading(reading) for reading in group),
        )
        for (at, after), group in list(times.items())[-CLOSE:]
    )


def _is_change(reading: Noted) -> bool:
    """True if a reading counts as a change. Packages are counted from the logs; a unit that has run and ended, or runs
    again, has not changed."""
    if reading.kind == "unit":
        return reading.before.split(" ")[0] != reading.after.split(" ")[0] or reading.after.endswith("failed")
    return reading.kind != "package"


def _format_reading(reading: Noted) -> str:
    """Format a reading: `/etc/modprobe.d/x.conf written by uid 0`,
    `docker.service enabled active → enabled inactive`."""
    if reading.kind == "file":
        owner = f", which is of uid {reading.owner}" if reading.owner else ""
        return (
            f"{reading.name} "
            f"{'written' if reading.before and reading.after else 'made' if reading.after else 'removed'}{owner}"
        )
    return f"{reading.kind} {reading.name} {reading.before or 'absent'} → {reading.after or 'absent'}".replace(
        "kernel kernel", "kernel"
    )


def _format_event(event: history.Event) -> str:
    if event.before and event.after:
        return f"{event.package} {event.before} → {event.after}"
    return " ".join(word for word in (event.package, event.after or event.before, event.action) if word)


def _parse_time(text: str) -> datetime | None:
    try:
        then = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return then if then.tzinfo else then.replace(tzinfo=UTC)
