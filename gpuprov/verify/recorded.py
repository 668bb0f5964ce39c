"""Records judged by the specs of an inventory: no host is reached."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import msgspec

from gpuprov.core.errors import GpuprovError
from gpuprov.core.safe_parse import is_whole
from gpuprov.facts.captures import Record, RecordedFacts
from gpuprov.facts.collect.unreached import Unreached
from gpuprov.inventory.names import fold_names
from gpuprov.spec.model import HostSpec
from gpuprov.verify.evaluate import RECORDED, Result, checks_of, evaluate
from gpuprov.verify.racks import compare_hosts
from gpuprov.verify.verify import Pairs, unreachable


def verify(
    fleet: Pairs,
    records: Iterable[Record],
    *,
    only: Collection[str] | None = None,
    named: bool = False,
    others: Sequence[str] = (),
    note: Callable[[str], None] = lambda text: None,
) -> list[Result]:
    """Every check of each host that a record is of, as `read` finds it. What a record does not hold is `skip`. One
    record is kept at a time."""
    specs = {raw.name: spec for raw, spec in fleet}
    results: dict[str, list[Result]] = {}
    for name, known in _match_records(fleet, records, named=named, others=others, note=note):
        if isinstance(known, Unreached):
            results[name] = [unreachable(name, known)]
        else:
            results[name] = judge(specs[name], known, only)
    return compare_hosts([result for raw, _ in fleet for result in results.get(raw.name, ())])


def verify_alone(
    records: Iterable[Record], build_spec: Callable[[str], HostSpec], only: Collection[str] | None = None
) -> list[Result]:
    """Return every check of each record's host by the spec that `build_spec` has for its name: there is no inventory.
    Raises GpuprovError if two records are of one host."""
    results: dict[str, list[Result]] = {}
    paths: dict[str, str] = {}
    for record in records:
        name = record.host or record.places[0]
        _note_path(paths, name, record)
        known = _read_facts(name, record)
        spec = build_spec(name)
        results[name] = [unreachable(name, known)] if isinstance(known, Unreached) else judge(spec, known, only)
    return compare_hosts([result for found in results.values() for result in found])


def read(
    fleet: Pairs,
    records: Iterable[Record],
    *,
    named: bool = False,
    others: Sequence[str] = (),
    note: Callable[[str], None] = lambda text: None,
) -> dict[str, RecordedFacts | Unreached]:
    """Return what each host's record holds, or the reason why it cannot be read. Raises GpuprovError if a record
    belongs to no host, or to several.

    A record belongs to the host of its name, with or without the domain, or of its name as ansible_host. If there is
    only one host, a record without a name belongs to it, and one with another name if somebody has `named` the host.
    Records of the inventory's `others` are passed over. `note` is called with what a user should know of that.
    """
    return dict(_match_records(fleet, records, named=named, others=others, note=note))


def list_names(fleet: Pairs, others: Sequence[str]) -> frozenset[str]:
    """Return the names by which files may be named after the inventory's hosts, with and without the domain."""
    names = {name.casefold() for name in (*(raw.name for raw, _ in fleet), *others)}
    return frozenset(names | {short for name in names if not is_whole(short := name.partition(".")[0])})


def _match_records(
    fleet: Pairs, records: Iterable[Record], *, named: bool, others: Sequence[str], note: Callable[[str], None]
) -> Iterator[tuple[str, RecordedFacts | Unreached]]:
    paths: dict[str, str] = {}
    shared: dict[str, dict[str, bool]] = {}
    for record in records:
        if record.shared:
            known = bool(_find(fleet, others, record.host))
            shared.setdefault(record.path, {})[record.host] = known
            if not known:
                continue
        name = _find_host(fleet, record, named=named, others=others, note=note)
        if not name:
            continue
        _note_path(paths, name, record)
        yield name, _read_facts(name, record)
    for path, hosts in shared.items():
        _judge_shared(path, hosts, note)


def _note_path(paths: dict[str, str], name: str, record: Record) -> None:
    """Note the path of a host's record. Raises GpuprovError if the host has one already."""
    if name in paths:
        raise GpuprovError(
            f"{paths[name]} and {record.path} are both records of {name}", "name one of them with --from"
        )
    paths[name] = record.path


def _judge_shared(path: str, hosts: dict[str, bool], note: Callable[[str], None]) -> None:
    """Note the hosts in a log of several that the inventory does not know. Raises GpuprovError if it knows none."""
    unknown = fold_names(host for host, known in hosts.items() if not known)
    if unknown and not any(hosts.values()):
        raise GpuprovError(
            f"{path} is a log of several hosts, and the inventory has none of them: {unknown}",
            "write the lines of one host to a file of its own, and say which host it is: --limit HOST",
        )
    if unknown:
        note(f"{path}: passed over, since the inventory does not have them: lines of {unknown}")


def judge(spec: HostSpec, facts: RecordedFacts, only: Collection[str] | None = None) -> list[Result]:
    """Return the results of one host. A record that could not be read whole is one of them, and an error: what it lacks
    could be what fails."""
    results = evaluate(spec, facts, only=only)
    if not facts.record.cut:
        return results
    partial = {
        check.id for check in checks_of(spec) if any(probe.name in facts.record.partial for probe in check.probes)
    }
    results = [
        msgspec.structs.replace(result, status="skip", found=f"nothing in what is left of it: {facts.record.cut}")
        if result.check in partial and result.status == "pass"
        else result
        for result in results
    ]
    return [
        Result(
            host=spec.name,
            capability="host",
            check=RECORDED,
            status="error",
            expected=f"a {facts.record.kind} that can be read whole",
            found=facts.record.cut,
            fix="make the record again; a file in it that belongs to no host can be left out",
        ),
        *results,
    ]


def _read_facts(name: str, record: Record) -> RecordedFacts | Unreached:
    if record.fault:
        return Unreached(name, f"its {record.kind} cannot be read: {record.fault}", f"see {record.path}")
    return RecordedFacts(record)


def left_out(fleet: Pairs, results: Sequence[Result]) -> list[str]:
    """The hosts of which none of the records is: nothing is said of them."""
    checked = {result.host for result in results}
    return [raw.name for raw, _ in fleet if raw.name not in checked]


def _find_host(fleet: Pairs, record: Record, *, named: bool, others: Sequence[str], note: Callable[[str], None]) -> str:
    """Return the host's name in the inventory; empty if it is one of the others. The name of the record's file or
    folder goes before the one that it has inside, which many logs lack, or have by a cloud's name. Raises GpuprovError
    where it cannot be told."""
    names = [raw.name for raw, _ in fleet]
    hosts_by_name = {name: host for name in (*record.places, record.host) if (host := _find(fleet, others, name))}
    if len({*hosts_by_name.values()}) > 1:
        raise GpuprovError(
            f"{record.path} {_explain_conflict(record, hosts_by_name)}: the inventory has both",
            "put it into the folder of its own host",
        )
    if hosts_by_name:
        host = next(iter(hosts_by_name.values()))
        return host if host in names else ""
    if len(names) == 1 and (named or not record.host):
        if record.host:
            note(f'{record.path} calls its host "{record.host}"; judged as {names[0]}, as --limit says')
        return names[0]
    called = f'calls its host "{record.host}"' if record.host else "does not name its host"
    raise GpuprovError(
        f"{record.path} {called}; the inventory has {', '.join(names[:5])}{' ...' if len(names) > 5 else ''}",
        "say which host it is: --limit HOST",
    )


def _explain_conflict(record: Record, hosts_by_name: dict[str, str]) -> str:
    """Return the two names of hosts that a record has."""
    first, second = [*dict.fromkeys(hosts_by_name.values())][:2]
    outer, inner = (next(name for name in hosts_by_name if hosts_by_name[name] == host) for host in (first, second))
    if inner == record.host:
        return f'calls its host "{inner}", and its file or folder is named "{outer}"'
    return f'lies in files and folders that are named "{outer}" and "{inner}"'


def _find(fleet: Pairs, others: Sequence[str], name: str) -> str:
    """Return the one host of the inventory with this name or address, with or without its domain, or by which a file of
    this name begins; empty if none or several have. Names of hosts are the same in capitals (RFC 4343)."""
    short = name.casefold().partition(".")[0]
    if not short:
        return ""
    addresses = [raw.name for raw, _ in fleet if name in (raw.name, raw.connection.get("ansible_host"))]
    hosts = [*(raw.name for raw, _ in fleet), *others]
    begins = [host for host in hosts if "." in host and name.casefold().startswith(f"{host.casefold()}.")]
    for alike in (
        [*addresses, *(other for other in others if other == name)],
        [host for host in begins if len(host) == max(map(len, begins))],
        [host for host in hosts if host.casefold().partition(".")[0] == short and not is_whole(short)],
    ):
        if alike:
            return alike[0] if len(alike) == 1 else ""
    return ""
