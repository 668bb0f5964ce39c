"""A rack whose GPUs share an NVLink fabric (NVL72): which host reported its fatal errors first, and what is done once
for all of its hosts."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from gpuprov.capabilities.base import Outcome
from gpuprov.capabilities.health.firmware import BASELINE, judge_fleet
from gpuprov.capabilities.health.past import NO_CLOCK, moment
from gpuprov.capabilities.health.rack import IMEX
from gpuprov.facts.probes.gpus.fabric import NvlinkError
from gpuprov.inventory.names import fold_names
from gpuprov.verify.evaluate import Result, ResultStatus

# Seconds without an error after which the next one is of another incident.
APART = 60.0
# Seconds by which clocks of hosts may differ: within them nobody knows who was first.
SAME = 1.0
CHECKS = ("health.xid", "health.recovery")


class Rack(msgspec.Struct, frozen=True, kw_only=True):
    """An incident of a rack. `rack`: NVLink domain and clique, as nvidia-smi prints them; `source`: what it begins
    with: an error of a host's own GPU, or only errors that name the other end of the link, a switch tray for example.
    `first`: hosts whose error came first, all of them where the times do not tell; `shows`: that error; `followers`:
    the other hosts that report one. `recover`: hosts that ask for a recovery of the IMEX domain."""

    rack: str
    source: Literal["host", "peer", ""]
    first: tuple[str, ...]
    shows: str
    followers: tuple[str, ...]
    recover: tuple[str, ...]
    words: str
    fix: str


class _Event(msgspec.Struct, frozen=True):
    host: str
    error: NvlinkError


def find_racks(results: Sequence[Result]) -> tuple[Rack, ...]:
    """Find the racks of which several hosts report errors, from the results of a run's hosts."""
    return list_racks((result.host, result.nvlink_errors) for result in results)


def list_racks(reports: Iterable[tuple[str, Sequence[NvlinkError]]]) -> tuple[Rack, ...]:
    """Return the racks of which several hosts report errors; a host may report several times."""
    by_rack: dict[str, list[_Event]] = {}
    for host, errors in reports:
        for error in errors:
            by_rack.setdefault(error.rack, []).append(_Event(host, error))
    return tuple(rack for name, events in by_rack.items() for rack in _list_incidents(name, events))


def share_recovery(results: Sequence[Result]) -> list[Result]:
    """Return the results; hosts that ask for a recovery of one IMEX domain are referred to their rack."""
    shared = find_shared(find_racks(results))
    return [refer(result, shared.get(result.host, "")) for result in results]


def find_shared(racks: Iterable[Rack]) -> Mapping[str, str]:
    """Return the racks whose IMEX domain several hosts ask to recover, by host."""
    return {host: rack.rack for rack in racks if len(rack.recover) > 1 for host in rack.recover}


def refer(result: Result, rack: str) -> Result:
    """Return the result; what it says of its own IMEX domain is said of the rack, if there is one."""
    if not rack or result.check not in CHECKS or not result.fix.startswith(IMEX.fix):
        return result
    return msgspec.structs.replace(result, fix=f"recover the IMEX domain of rack {rack}, once for all of it")


def _list_incidents(name: str, events: Sequence[_Event]) -> Iterator[Rack]:
    faults = sorted((event for event in events if not event.error.recover), key=lambda event: event.error.at)
    recover = tuple(dict.fromkeys(event.host for event in events if event.error.recover))
    incidents = [incident for incident in _split(faults) if len({event.host for event in incident}) > 1]
    for number, incident in enumerate(incidents):
        yield _describe(name, incident, recover if number == len(incidents) - 1 else ())
    if not incidents and len(recover) > 1:
        yield _describe(name, (), recover)


def _split(events: Sequence[_Event]) -> Iterator[list[_Event]]:
    """Split events, in the order of their times, into incidents. If a host has no clock times, all are one."""
    incident: list[_Event] = []
    clocked = _is_clocked(events)
    for event in events:
        if incident and clocked and event.error.at - incident[-1].error.at > APART:
            yield incident
            incident = []
        incident.append(event)
    if incident:
        yield incident


def _is_clocked(events: Sequence[_Event]) -> bool:
    return all(event.error.at >= NO_CLOCK for event in events)


def _describe(name: str, incident: Sequence[_Event], recover: tuple[str, ...]) -> Rack:
    own = [event for event in incident if not event.error.follows]
    candidates = own or list(incident)
    if _is_clocked(candidates):
        candidates = [event for event in candidates if event.error.at - candidates[0].error.at <= SAME]
    first = tuple(dict.fromkeys(event.host for event in candidates))
    hosts = dict.fromkeys(event.host for event in incident)
    followers = tuple(host for host in hosts if host not in first) if own else ()
    words, fix = zip(*_advise_rack(incident, first if own else (), followers, recover), strict=True)
    return Rack(
        rack=name,
        source=("host" if own else "peer") if incident else "",
        first=first if own else (),
        shows=_quote(candidates[0]) if incident else "",
        followers=followers if own else tuple(hosts),
        recover=recover,
        words="; ".join(words),
        fix="; ".join(fix),
    )


def _quote(event: _Event) -> str:
    error = event.error
    return f'{event.host}, {error.device}: Xid {error.number}, {moment(error.at)} ("{error.text[:90]}")'


def _advise_rack(
    incident: Sequence[_Event], first: tuple[str, ...], followers: tuple[str, ...], recover: tuple[str, ...]
) -> Iterator[tuple[str, str]]:
    """Yield what is known, each with what is to be done."""
    if len(first) == 1:
        words = f"{first[0]} reported a fatal NVLink error first, {fold_names(followers)} followed"
        yield words, f"look at {first[0]} first, and reset its GPUs; the others need a reset, and nothing else"
    elif first:
        more = f", {fold_names(followers)} followed" if followers else ""
        words = f"{fold_names(first)} reported fatal NVLink errors at the same time, as far as their clocks tell{more}"
        yield words, "the rack's controller (NMX) knows which link failed first; reset the GPUs of all of these hosts"
    elif incident:
        hosts = fold_names(dict.fromkeys(event.host for event in incident))
        words = f"{hosts} report NVLink errors that began at the other end of their links, and no host here began it"
        yield words, "look at the rack's switch trays (NMX), and at its hosts that were not read; then reset the GPUs"
    if recover:
        words = f"{fold_names(recover)} ask to recover the IMEX domain"
        yield (
            words,
            "once for the rack: end the programs on all its hosts, then systemctl restart nvidia-imex on "
            f"{fold_names(recover)}",
        )


WORST: tuple[ResultStatus, ...] = ("fail", "skip", "pass", "n/a")


def compare_hosts(results: Sequence[Result]) -> list[Result]:
    """Return the results, with the firmware of each host compared with that of the others; what hosts of one rack ask
    for together is said of the rack."""
    rows = [result for result in results if result.check == BASELINE and result.firmware]
    outcomes = judge_fleet({row.host: row.firmware for row in rows}, {row.host: row.machine for row in rows})
    return [
        complete(result, outcomes[result.host]) if result.check == BASELINE and result.host in outcomes else result
        for result in share_recovery(results)
    ]


def complete(result: Result, outcome: Outcome) -> Result:
    """Return the worse of a host's own result and of the outcome of the comparison; equally bad ones are one result.
    What passes is reported beside what is not proven."""
    own, other = WORST.index(result.status), WORST.index(outcome.status)
    result = msgspec.structs.replace(result, firmware=(), machine="")
    if own < other:
        beside = f"; {outcome.found}" if result.status == "skip" else ""
        return msgspec.structs.replace(result, found=f"{result.found}{beside}")
    same = own == other
    return msgspec.structs.replace(
        result,
        status=outcome.status,
        action=outcome.action,
        expected="; ".join(filter(None, (result.expected * same, outcome.expected))),
        found="; ".join(filter(None, (result.found * same, outcome.found))),
        fix="; ".join(dict.fromkeys(filter(None, (result.fix * same, outcome.fix)))),
    )
