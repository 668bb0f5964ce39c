"""Records judged by the specs of an inventory: no host is reached."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gpuprov.errors import GpuprovError
from gpuprov.gather.unreached import Unreached
from gpuprov.records import Record, RecordedFacts
from gpuprov.verify.evaluate import Result, evaluate
from gpuprov.verify.verify import Pairs, unreachable


def verify(
    fleet: Pairs, records: Sequence[Record], *, only: Collection[str] | None = None, named: bool = False
) -> list[Result]:
    """Every check of each host that a record is of, as `read` finds it. What a record does not hold is `skip`."""
    facts = read(fleet, records, named=named)
    results: list[Result] = []
    for raw, spec in fleet:
        known = facts.get(raw.name)
        if isinstance(known, Unreached):
            results.append(unreachable(raw.name, known))
        elif known is not None:
            results += evaluate(spec, known, only=only)
    return results


def read(fleet: Pairs, records: Sequence[Record], *, named: bool = False) -> dict[str, RecordedFacts | Unreached]:
    """Return what each host's record holds, or the reason why it cannot be read. Raises GpuprovError if a record
    belongs to no host, or to several.

    A record belongs to the host of its name, with or without the domain, or of its name as ansible_host. If there is
    only one host, a record without a name belongs to it, and one with another name if somebody has `named` the host.
    """
    matched: dict[str, Record] = {}
    for record in records:
        name = _host(fleet, record, named=named)
        if name in matched:
            raise GpuprovError(
                f"{matched[name].path} and {record.path} are both records of {name}", "name one of them with --from"
            )
        matched[name] = record
    return {name: _facts(name, record) for name, record in matched.items()}


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
