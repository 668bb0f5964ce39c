"""Records judged by the specs of an inventory: no host is reached."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from gpuprov.core.errors import GpuprovError
from gpuprov.facts.captures import Record, RecordedFacts
from gpuprov.facts.collect.unreached import Unreached
from gpuprov.verify.evaluate import Result, evaluate
from gpuprov.verify.verify import Pairs, unreachable


def verify(
    fleet: Pairs, records: Iterable[Record], *, only: Collection[str] | None = None, named: bool = False
) -> list[Result]:
    """Every check of each host that a record is of, as `read` finds it. What a record does not hold is `skip`. One record is
    kept at a time."""
    specs = {raw.name: spec for raw, spec in fleet}
    results: dict[str, list[Result]] = {}
    for name, known in _matched(fleet, records, named=named):
        if isinstance(known, Unreached):
            results[name] = [unreachable(name, known)]
        else:
            results[name] = list(evaluate(specs[name], known, only=only))
    return [result for raw, _ in fleet for result in results.get(raw.name, ())]


def read(fleet: Pairs, records: Iterable[Record], *, named: bool = False) -> dict[str, RecordedFacts | Unreached]:
    """Return what each host's record holds, or the reason why it cannot be read. Raises GpuprovError if a record
    belongs to no host, or to several.

    A record belongs to the host of its name, with or without the domain, or of its name as ansible_host. If there is
    only one host, a record without a name belongs to it, and one with another name if somebody has `named` the host.
    """
    return dict(_matched(fleet, records, named=named))


def _matched(
    fleet: Pairs, records: Iterable[Record], *, named: bool
) -> Iterator[tuple[str, RecordedFacts | Unreached]]:
    paths: dict[str, str] = {}
    for record in records:
        name = _host(fleet, record, named=named)
        if name in paths:
            raise GpuprovError(
                f"{paths[name]} and {record.path} are both records of {name}", "name one of them with --from"
            )
        paths[name] = record.path
        yield name, _facts(name, record)


def _facts(name: str, record: Record) -> RecordedFacts | Unreached:
    if record.fault:
        return Unreached(name, f"its {record.kind} cannot be read: {record.fault}", f"see {record.path}")
    return RecordedFacts(record)


def left_out(fleet: Pairs, results: Sequence[Result]) -> list[str]:
    """The hosts of which none of the records is: nothing is said of them."""
    checked = {result.host for result in results}
    return [raw.name for raw, _ in fleet if raw.name not in checked]


def _host(fleet: Pairs, record: Record, *, named: bool) -> str:
    names = [raw.name for raw, _ in fleet]
    short = record.host.partition(".")[0]
    for alike in (
        [raw.name for raw, _ in fleet if record.host and record.host in (raw.name, raw.connection.get("ansible_host"))],
        [name for name in names if short and name.partition(".")[0] == short],
        names if named or not record.host else [],
    ):
        if len(alike) == 1:
            return alike[0]
        if alike:
            break
    called = f'calls its host "{record.host}"' if record.host else "does not name its host"
    raise GpuprovError(
        f"{record.path} {called}; the inventory has {', '.join(names[:5])}{' ...' if len(names) > 5 else ''}",
        "say which host it is: --limit HOST",
    )
