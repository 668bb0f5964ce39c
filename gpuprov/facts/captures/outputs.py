"""Plain files of one host: outputs of commands -> one record."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from gpuprov.core.safe_parse import Unreadable, archives
from gpuprov.facts.captures import adapt, logs, plain
from gpuprov.facts.captures.model import Kind, Pieces, Record
from gpuprov.facts.probes.base import Output

# Names of files, without what follows a dot, that are those of a command or a log.
_COMMAND = re.compile(
    r"(?:nvidia[-_]?)?(?:smi|nvlink)(?:[-_]?(?:[eqsx]|qx|errors|status|log))?|dmesg|journal(?:ctl)?|kern|syslog|"
    r"messages|ibstat|lspci",
    re.IGNORECASE,
)
# A file's name: the stem, and what logrotate adds (`kern.log.2.gz`, `messages-20261128.xz`).
_NAME = re.compile(
    r"(?P<stem>[^.]*?)(?:-(?P<date>\d{8}))?(?P<kind>(?:\.[^.]+)*?)(?:\.(?P<number>\d{1,3}))?(?P<packed>\.(?:gz|xz|"
    r"bz2|zst))?\Z"
)
_PLACED = re.compile(r"(?:[^/.][^/]*/)?[^/.][^/]*\Z")
_KINDS = (".txt", ".log", ".xml", ".out")
# Bytes by which a file is taken for one.
_HEAD = 1 << 18
CUT = "the compressed file that it is from was cut off"
# Which of the logs that `adapt` chooses from it is, by the stem of its file; another one is taken for dmesg.
_LOGS = {
    "journal": "journalctl",
    "journalctl": "journalctl",
    "kern": "/var/log/kern.log",
    "messages": "/var/log/messages",
    "syslog": "/var/log/syslog",
}


class File(NamedTuple):
    """A file of a command."""

    stem: str
    command: str
    text: str
    cut: bool = False
    # Those of one stem in this order are from the oldest to the newest; 0: not rotated.
    age: tuple[int, int] = (0, 0)
    name: str = ""


def is_placed(name: str) -> bool:
    """Return whether a file in a folder may be one: there, or one folder below."""
    return _PLACED.match(name) is not None


def is_one(name: str, data: bytes | Unreadable) -> bool:
    """Return whether a file is one by its text. One that cannot be read is if its name is that of a log or a text,
    plain or compressed."""
    file = name.rpartition("/")[2]
    parts = _NAME.match(file)
    known = parts is not None and _COMMAND.fullmatch(parts["stem"]) is not None
    named = parts is not None and bool(
        known or parts["kind"].endswith(_KINDS) or (parts["packed"] and not parts["kind"].endswith(".tar"))
    )
    if isinstance(data, Unreadable):
        return named
    try:
        head = archives.decode_text(archives.unpack_head(data, _HEAD))
    except Unreadable:
        return named
    try:
        return known or bool(plain.identify(head)[0])
    except Unreadable:  # one that says too little
        return True


def convert(pieces: Pieces) -> dict[str, Output]:
    """Convert the pieces to outputs. A report does not say whether it was made in a container; it is taken for one of a
    host."""
    return {"container": Output("none\n"), **adapt.outputs(pieces)}


def build(path: str, host: str, files: Sequence[File], kind: Kind = "command output") -> Record:
    """Return the record of these outputs. One that breaks off is left out, except a log, which is read up to its last
    whole line."""
    pieces = Pieces(commands={})
    for file in files:
        if file.command != plain.LOG:
            known = pieces.commands.get(file.command, "")
            pieces.commands |= {} if file.cut else {file.command: max(known, file.text, key=len)}
    for stem, text in _join_logs([file for file in files if file.command == plain.LOG]).items():
        name = _LOGS.get(stem, plain.LOG)
        into = pieces.files if name.startswith("/") else pieces.commands
        into[name] = max(into.get(name, ""), text, key=len)
    pieces = adapt.whole(pieces)
    cuts = [file for file in files if file.cut]
    why = "; ".join(dict.fromkeys(f"{file.stem}: {CUT}" if file.stem else CUT for file in cuts))
    partial = frozenset({"kernel_log"} if any(file.command == plain.LOG for file in cuts) else ())
    text = "\n".join(file.text for file in files)
    record = Record(
        host=host, path=path, kind=kind, outputs=convert(pieces), text=text, cut=pieces.cut, partial=partial
    )
    return _cut(record, why)


def _join_logs(files: Iterable[File]) -> dict[str, str]:
    """Return the logs by stem: of files beside each other the longer one, behind what was rotated away from it."""
    joined: dict[str, str] = {}
    newest: dict[str, str] = {}
    for file in sorted(files, key=lambda file: file.age):
        text = file.text.rpartition("\n")[0] + "\n" if file.cut else file.text
        if file.age == (0, 0):
            newest[file.stem] = max(newest.get(file.stem, ""), text, key=len)
        else:
            joined[file.stem] = joined.get(file.stem, "") + text.rstrip("\n") + "\n"
    return {stem: joined.get(stem, "") + newest.get(stem, "") for stem in {**joined, **newest}}


def build_shared(path: str, parts: Mapping[str, str], made: float = 0, *, cut: bool = False) -> Iterator[Record]:
    """Yield a record of each host in a log of several; none of what does not have the kernel's lines."""
    for host, text in parts.items():
        if lines := logs.kernel_log(text, made):
            yield Record(
                host=host,
                path=path,
                kind="kernel log",
                outputs={"container": Output("none\n"), "kernel_log": Output(lines)},
                text=text,
                shared=True,
                cut=CUT if cut else "",
                partial=frozenset({"kernel_log"} if cut else ()),
            )


def combine(
    path: str, place: str, files: Mapping[str, bytes | Unreadable], roots: tuple[str, ...], hosts: Collection[str]
) -> list[Record]:
    """Return the records in the plain files of a folder. They are of one host, unless two of them are of the same
    command, or of different `hosts` by their names: then a host's name ends at the first dot of a file's. Files that
    are named after what they hold (smi.txt, smi.xml, dmesg.log) do not tell hosts apart: of two the longer one is kept.
    `place`: the folder inside of what is read, `roots`: the names of that itself; each may be named after its host."""
    known: list[File] = []
    faults: dict[str, Unreadable] = {}
    shared: list[Record] = []
    around = (*reversed([part for part in place.split("/") if part]), *roots)
    for name, data in files.items():
        try:
            file = _read(name, data)
        except Unreadable as error:
            faults[_get_stem(name)] = error
            continue
        parts = logs.split_by_host(file.text) if file.command == plain.LOG else {}
        own = next((host for host in parts if host.partition(".")[0] in (file.stem, *around)), "")
        if parts and not own:
            shared += build_shared(f"{path}/{name}", parts, cut=file.cut)
        else:
            known.append(file._replace(text=parts.get(own, file.text)))
    is_single = _is_one_host(known, faults, hosts)
    grouped: dict[str, list[File]] = {}
    for file in known:
        grouped.setdefault("" if is_single else file.stem, []).append(file)
    where, folder = f"{path}/{place}" if place else path, place.rpartition("/")[2]
    records = []
    for stem, group in grouped.items():
        log = next((file.text for file in group if file.command == plain.LOG and logs.host(file.text)), "")
        record = build(where if is_single else f"{where}/{stem}.*", logs.host(log) or stem or folder, group)
        records.append(msgspec.structs.replace(record, places=(*_list_names(group), *around)))
    return [*_add_faults(records, faults, where, around, is_single=is_single), *shared]


def _get_stem(name: str) -> str:
    parts = _NAME.match(name.rpartition("/")[2])
    return parts["stem"] if parts else name


def _list_names(files: Iterable[File]) -> list[str]:
    """Return the names that are not command's, with and without what follows the first dot: they may be of hosts."""
    names = [name for file in files if not _COMMAND.fullmatch(file.stem) for name in (file.stem, file.name) if name]
    return [*dict.fromkeys(names)]


def _read(name: str, data: bytes | Unreadable) -> File:
    """Read a file. Raises Unreadable."""
    if isinstance(data, Unreadable):
        raise data
    contents = archives.unpack_inner(data)
    command, text = plain.identify(archives.decode_text(contents.data))
    if not command:
        raise Unreadable(CUT if contents.cut else "it holds no output of that name")
    parts = _NAME.match(name.rpartition("/")[2])
    assert parts is not None
    date, number = int(parts["date"] or 0), int(parts["number"] or 0)
    return File(parts["stem"], command, text, contents.cut, (date - 10**8 if date else 0, -number), parts[0])


def _is_one_host(known: Iterable[File], faults: Iterable[str], hosts: Collection[str]) -> bool:
    """Return whether files are of one host: none of the names that are not command's has a command twice, no two of
    them are of different hosts, and no file of another name is broken."""
    named = [(file.stem, file.command) for file in known if not _COMMAND.fullmatch(file.stem)]
    stems = {stem for stem, _ in named}
    if stems and any(not _COMMAND.fullmatch(stem) and stem not in stems for stem in faults):
        return False
    if len({stem.casefold() for stem in stems} & set(hosts)) > 1:
        return False
    return max(Counter(command for _, command in named).values(), default=0) <= 1


def _add_faults(
    records: list[Record], faults: Mapping[str, Unreadable], where: str, around: tuple[str, ...], *, is_single: bool
) -> list[Record]:
    """Add the files that cannot be read: to the record of their host, or as one without outputs."""
    if is_single and faults:
        why = "; ".join(f"{stem}: {fault}" for stem, fault in faults.items())
        if records:
            return [_cut(record, why) for record in records]
        places = (*_list_names(File(stem, "", "") for stem in faults), *around)
        host = next(iter(places), "")
        return [Record(host=host, path=where, kind="command output", outputs={}, fault=why, places=places)]
    for stem, fault in faults.items():
        path = f"{where}/{stem}.*"
        beside = [record for record in records if record.path == path]
        if beside:
            records[records.index(beside[0])] = _cut(beside[0], str(fault))
        else:
            places = (*_list_names([File(stem, "", "")]), *around)
            records.append(
                Record(host=stem, path=path, kind="command output", outputs={}, fault=str(fault), places=places)
            )
    return records


def _cut(record: Record, why: str) -> Record:
    return msgspec.structs.replace(record, cut="; ".join(part for part in (record.cut, why) if part))
