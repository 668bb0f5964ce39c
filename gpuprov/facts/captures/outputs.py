"""Plain files of one host: outputs of commands -> one record."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from gpuprov.core.safe_parse import Unreadable, archives
from gpuprov.facts.captures import adapt, logs, plain
from gpuprov.facts.captures.model import Kind, Pieces, Record
from gpuprov.facts.probes.base import Output

_NAMED = re.compile(r"(?:[^/]+/)?(?:[^/]+\.(?:txt|log|xml|out)|dmesg|ibstat|lspci)\Z")
_COMMAND = re.compile(
    r"(?:nvidia[-_]?)?(?:smi|nvlink)(?:[-_]?(?:[eqsx]|qx|errors|status|log))?|dmesg|journal(?:ctl)?|kern|syslog|messages|ibstat|lspci",
    re.IGNORECASE,
)
"""Names of files, without what follows a dot, that are those of a command or a log."""


def is_named(name: str) -> bool:
    """Return whether a file in a folder may be one: there, or one folder below."""
    return _NAMED.match(name) is not None


def convert(pieces: Pieces) -> dict[str, Output]:
    """Convert the pieces to outputs. A report does not say whether it was made in a container; it is taken for one of a
    host."""
    return {"container": Output("none\n"), **adapt.outputs(pieces)}


def build(path: str, host: str, commands: Mapping[str, str], kind: Kind = "command output") -> Record:
    """Return the record of these outputs."""
    pieces = adapt.whole(Pieces(commands=dict(commands)))
    text = "\n".join(commands.values())
    return Record(host=host, path=path, kind=kind, outputs=convert(pieces), text=text, cut=pieces.cut)


def combine(path: str, place: str, files: Mapping[str, bytes | Unreadable]) -> list[Record]:
    """Return the records in the plain files of a folder. They are of one host, unless two of them are of the same
    command: then a host's name ends at the first dot of a file's. Files that are named after what they hold (smi.txt,
    smi.xml, dmesg.log) do not tell hosts apart: of two the longer one is kept. `place`: the folder inside of what is
    read, which may be named after its host."""
    known: list[tuple[str, str, str]] = []
    faults: dict[str, Unreadable] = {}
    for name, data in files.items():
        stem = name.rpartition("/")[2].partition(".")[0]
        try:
            if isinstance(data, Unreadable):
                raise data
            command, text = plain.identify(archives.decode_text(archives.unpack_inner(data)))
            if not command and _COMMAND.fullmatch(stem):
                raise Unreadable("it holds no output of that name")
        except Unreadable as error:
            faults[stem] = error
            continue
        if command:
            known.append((stem, command, text))
    one = _are_of_one(known, faults)
    hosts: dict[str, dict[str, str]] = {}
    for stem, command, text in known:
        commands = hosts.setdefault("" if one else stem, {})
        commands[command] = max(commands.get(command, ""), text, key=len)
    where, folder = f"{path}/{place}" if place else path, place.rpartition("/")[2]
    records = []
    for stem, commands in hosts.items():
        host = logs.host(commands.get(plain.LOG, "")) or stem or folder
        record = build(where if one else f"{where}/{stem}.*", host, commands)
        records.append(msgspec.structs.replace(record, folder=folder))
    return _add_faults(records, faults, where, place, one=one)


def _are_of_one(known: Iterable[tuple[str, str, str]], faults: Iterable[str]) -> bool:
    """Return whether files are of one host: none of the names that are no command's has a command twice, and no file of
    another name is broken."""
    named = [(stem, command) for stem, command, _ in known if not _COMMAND.fullmatch(stem)]
    stems = {stem for stem, _ in named}
    if stems and any(not _COMMAND.fullmatch(stem) and stem not in stems for stem in faults):
        return False
    return max(Counter(command for _, command in named).values(), default=0) <= 1


def _add_faults(
    records: list[Record], faults: Mapping[str, Unreadable], where: str, place: str, *, one: bool
) -> list[Record]:
    """Add the files that cannot be read: to the record of their host, or as one without outputs."""
    if one and faults:
        why = "; ".join(f"{stem}: {fault}" for stem, fault in faults.items())
        if not records:
            host = place.rpartition("/")[2] or next(iter(faults))
            return [Record(host=host, path=where, kind="command output", outputs={}, fault=why)]
        return [_cut(record, why) for record in records]
    for stem, fault in faults.items():
        path = f"{where}/{stem}.*"
        beside = [record for record in records if record.path == path]
        if beside:
            records[records.index(beside[0])] = _cut(beside[0], str(fault))
        else:
            records.append(Record(host=stem, path=path, kind="command output", outputs={}, fault=str(fault)))
    return records


def _cut(record: Record, why: str) -> Record:
    return msgspec.structs.replace(record, cut="; ".join(part for part in (record.cut, why) if part))
