"""One host's results and facts -> its drift. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from gpuprov.drift.model import Cause, Difference, HostDrift, State
from gpuprov.masking import masked
from gpuprov.probe.base import Facts, Probe
from gpuprov.probe.host import contents, house
from gpuprov.probe.host.readings import READINGS, Noted, Readings
from gpuprov.probe.software import history
from gpuprov.render import digests
from gpuprov.render.spec_digest import SPEC, is_changed
from gpuprov.spec.model import HostSpec
from gpuprov.verify.evaluate import FAILING, Result
from gpuprov.verify.unmanaged import find_unmanaged
from gpuprov.verify.verify import next_boot, verdict

PROBES: tuple[Probe[Any], ...] = (house.RECEIPT, house.MARKER, history.HISTORY, READINGS, contents.CONTENTS)
"""What is read beside what the checks need."""
VERSION = re.compile(r"\d{1,9}(?:\.\d{1,9})+(?:-\d[\w.]*(?:-[a-z]\w*)?)?")
"""A version of a driver or a release of a kernel, in what a check found."""
CLOSE = 3
"""Commands that are named for one difference: the latest."""


def judge(
    spec: HostSpec,
    results: Sequence[Result],
    facts: Facts,
    *,
    only: Collection[str] | None = None,
    since: datetime | None = None,
) -> HostDrift:
    """What differs now from the spec, whether the spec or the host is another than at the last apply, and what did it."""
    receipt = facts.known(house.RECEIPT)
    changed = _changed(spec, receipt, only)
    log = facts.known(history.HISTORY)
    applied = _applied(receipt)
    begin = since or applied.get("")
    kept = facts.known(READINGS)
    minded: set[tuple[datetime, str]] = set()
    placed: list[Noted] = []
    differences = []
    for one in results:
        if one.status not in FAILING or one.moment == "preflight":
            continue
        own = since or applied.get(one.capability, begin)
        mine = _events_of(one, _logged(log, own))
        minded |= {(event.at, event.package) for event in mine}
        near = _near(one, _kept(kept, own), {event.package for event in mine})
        placed += near
        differences.append(
            Difference(
                capability=one.capability,
                check=one.check,
                moment=one.moment,
                expected=one.expected,
                found=one.found,
                fix=one.hint,
                unread=one.status == "error",
                reboot_fixes=bool(one.reboot),
                spec_changed=one.capability in changed,
                follows=one.follows,
                causes=(*_causes(mine), *_as_causes(near, applied.values())),
            )
        )
    boot = next_boot(results).get(spec.name)
    return HostDrift(
        host=spec.name,
        state=_state(results, receipt, changed, differences),
        applied_at=receipt.applied_at if receipt else "",
        applied_with=receipt.gpuprov_version if receipt else "",
        cut_off=bool(facts.known(house.MARKER)),
        next_boot=boot.verdict if boot else "unknown",
        next_boot_reasons=boot.reasons if boot else (),
        spec_changed=changed,
        differences=tuple(differences),
        harmless=len({one.package for one in _logged(log, begin) if (one.at, one.package) not in minded})
        if log and log.logs and begin
        else None,
        noted=_as_causes(
            one
            for one in _kept(kept, begin)
            if one not in placed and _matters(one) and not _spans(one, applied.values())
        ),
        unmanaged=find_unmanaged(spec, facts),
        why=f"the receipt is damaged ({receipt.damaged})" if receipt and receipt.damaged else "",
    )


def _state(
    results: Sequence[Result], receipt: house.Receipt | None, changed: Collection[str], found: Sequence[Difference]
) -> State:
    if receipt is None or receipt.damaged or not receipt.capabilities:
        return "never applied" if receipt is None else "unknown"
    if any(not one.spec_changed and not one.unread for one in found):
        return "drifted"
    if changed:
        return "spec changed"
    return "unknown" if verdict(results) != "as wanted" else "as applied"


def _changed(spec: HostSpec, receipt: house.Receipt | None, only: Collection[str] | None) -> dict[str, str]:
    """By capability, what is another than at its last apply."""
    if receipt is None or receipt.damaged:
        return {}
    told: dict[str, str] = {}
    for name, present in digests(spec).items():
        if only is not None and name not in only:
            continue
        if (applied := receipt.capabilities.get(name)) is None:
            told[name] = "never applied"
        elif is_changed(applied.digest, present):
            told[name] = SPEC
    return told


def _applied(receipt: house.Receipt | None) -> dict[str, datetime]:
    """When each capability was last applied; by the empty name, when anything was."""
    told = (
        {"": receipt.applied_at} | {name: one.applied_at for name, one in receipt.capabilities.items()}
        if receipt
        else {}
    )
    return {name: at for name, text in told.items() if (at := _time(text))}


def _logged(log: history.History | None, begin: datetime | None) -> list[history.Event]:
    """What package managers did after this time."""
    return [one for one in log.events if begin is None or one.at > begin] if log else []


def _kept(kept: Readings | None, begin: datetime | None) -> list[Noted]:
    """What may have changed after this time. A reading with a time that is still to come was taken by a wrong clock."""
    if kept is None or begin is None:
        return list(kept.noted) if kept else []
    return [
        one
        for one in kept.noted
        if (one.at or max((at for at in (one.begin, one.end) if at <= kept.clock), default=one.end)) > begin
    ]


def _spans(one: Noted, applied: Iterable[datetime]) -> bool:
    """Whether gpuprov applied something between its two readings, which may be what changed it."""
    return one.at is None and any(one.begin < at <= one.end for at in applied)


def _events_of(result: Result, events: Iterable[history.Event]) -> list[history.Event]:
    """Of packages that the check would change, and those whose name, unit or version stands in what it expected or found."""
    names = {change.name for change in result.changes if change.kind == "package"}
    said = f"{result.expected} {result.found}"
    versions = set(VERSION.findall(said))
    names |= _packages_in(said)
    return [one for one in events if one.package in names or any(_names(one, version) for version in versions)]


def _packages_in(said: str) -> set[str]:
    """Words that may be names of packages: of units, and with a digit or a hyphen; `file`, `mount` and `time` are packages, too."""
    words = re.findall(r"[a-z0-9][a-z0-9+._-]{2,}", said)
    return {word.removesuffix(".service") for word in words if re.search(r"[0-9-]|\.service\Z", word)}


def _names(event: history.Event, version: str) -> bool:
    """Whether the package has this version of a driver, or is of the kernel with this release."""
    upstream = (event.after or event.before).rpartition(":")[2].partition("-")[0]
    return upstream == version or ("-" in version and event.package.endswith(version))


def _causes(events: Sequence[history.Event]) -> tuple[Cause, ...]:
    """The events by the command they belong to, the latest ones."""
    commands: dict[tuple[str, str, str], list[history.Event]] = {}
    for one in events:
        day = f"{one.at:%Y-%m-%d}" if one.command else f"{one.at:%Y-%m-%d %H:%M}"
        commands.setdefault((one.command, one.user, day), []).append(one)
    return tuple(
        Cause(
            at=found[0].at.isoformat(timespec="minutes"),
            command=masked(found[0].command)[0],
            user=found[0].user,
            packages=tuple(dict.fromkeys(_told(one) for one in found)),
        )
        for found in list(commands.values())[-CLOSE:]
    )


def _near(result: Result, noted: Iterable[Noted], logged: Collection[str]) -> list[Noted]:
    """What the host's own readings have of a difference: of packages only those that no log names."""
    said = f"{result.expected} {result.found} {result.hint}"
    versions = set(VERSION.findall(said))
    changes = {change.name.removesuffix(".service") for change in result.changes}
    words = {word.strip(".,:;()").removesuffix(".service") for word in said.split()}
    packages = _packages_in(said)
    return [
        one
        for one in noted
        if not (one.kind == "package" and one.name in logged)
        and (
            one.name.removesuffix(".service") in changes | (packages if one.kind == "package" else words)
            or (one.kind in ("module", "kernel") and {one.before, one.after} & versions)
        )
    ]


def _as_causes(noted: Iterable[Noted], applied: Collection[datetime] = ()) -> tuple[Cause, ...]:
    """Each the time at which a file was written, or the two readings between which it happened; together what has the same times."""
    times: dict[tuple[str, str], list[Noted]] = {}
    for one in noted:
        after = "" if one.at else one.begin.isoformat(timespec="minutes")
        times.setdefault(((one.at or one.end).isoformat(timespec="minutes"), after), []).append(one)
    return tuple(
        Cause(
            at=at,
            after=after,
            spans_apply=_spans(found[0], applied),
            packages=tuple(_noted(one) for one in found),
        )
        for (at, after), found in list(times.items())[-CLOSE:]
    )


def _matters(one: Noted) -> bool:
    """Packages are counted from the logs; that a unit has run and ended, or runs again, is no change of what was set up."""
    if one.kind == "unit":
        return one.before.split(" ")[0] != one.after.split(" ")[0] or one.after.endswith("failed")
    return one.kind != "package"


def _noted(one: Noted) -> str:
    """`/etc/modprobe.d/x.conf written by uid 0`, `docker.service enabled active → enabled inactive`."""
    if one.kind == "file":
        owner = f", which is of uid {one.owner}" if one.owner else ""
        return f"{one.name} {'written' if one.before and one.after else 'made' if one.after else 'removed'}{owner}"
    return f"{one.kind} {one.name} {one.before or 'absent'} → {one.after or 'absent'}".replace(
        "kernel kernel", "kernel"
    )


def _told(event: history.Event) -> str:
    if event.before and event.after:
        return f"{event.package} {event.before} → {event.after}"
    return " ".join(word for word in (event.package, event.after or event.before, event.action) if word)


def _time(text: str) -> datetime | None:
    try:
        then = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return then if then.tzinfo else then.replace(tzinfo=UTC)
