"""Reader of records at a path: one file or archive, or a folder of them. The kind is determined by the contents, never
by the name."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

import msgspec

from gpuprov.core.errors import GpuprovError
from gpuprov.core.safe_parse import Unreadable, archives, explain_refusal
from gpuprov.core.safe_parse.tar_headers import Cut
from gpuprov.facts.captures import adapt, bug_report, captured, logs, outputs, plain, sosreport
from gpuprov.facts.captures.model import Kind, Record
from gpuprov.facts.probes.base import Output

_BUG_REPORT = re.compile(r"(?:\A|/)nvidia-bug-report(?:_([^/]+?))?\.log(?:\.gz|\.xz)?\Z")
_CAPTURE = re.compile(r"[^/]+\.capture\.json\Z")
_OPERATOR_LOG = re.compile(r"(?:\A|/)(?:gpu_(?:operand|operator)_pod[^/]*|gpu_device_usage_[^/]*)\.log\Z")
ALLOWED = (
    "an nvidia-bug-report.log(.gz), an sosreport (archive or folder), a must-gather of the GPU operator, "
    "what gpuprov capture wrote, a kernel log (dmesg, journalctl, journalctl -o json), "
    f"or the output of {', '.join(plain.COMMANDS)}"
)
# Number of files that are not read of which the name is printed.
SHOWN = 5
CUT = "the archive that it is from was cut off"
# Probes that a bug report or an sosreport may answer.
READABLE = frozenset({"container", *adapt.PROBES})


def read(path: Path, hosts: Collection[str] = ()) -> list[Record]:
    """Read every record at the path, by host. Raises GpuprovError if there is none, or it cannot be read."""
    return sorted(iterate(path, hosts), key=lambda record: record.host)


def iterate(
    path: Path, hosts: Collection[str] = (), note: Callable[[str], None] = lambda text: None
) -> Iterator[Record]:
    """Yield every record at the path, one after another, so that a folder of many takes the memory of one. Raises as
    `read` does. `hosts`: names that tell hosts apart where files are named after them; `note` is called with what is
    not read."""
    has_record = False
    if what := explain_refusal(str(path)):
        raise GpuprovError(f"{path} is {what}, and no record", "write what it says to a file: dmesg > dmesg.log")
    try:
        is_folder = path.is_dir() or archives.is_archive(path)
        for record in _read_folder(path, hosts, note) if is_folder else _read_file(path):
            has_record = True
            yield record
    except OSError as error:
        raise GpuprovError(f"{path} cannot be read: {error.strerror}", f"name {ALLOWED}") from error
    except Unreadable as error:
        raise GpuprovError(f"{path} cannot be read: {error}", f"name {ALLOWED}") from error
    if not has_record:
        raise GpuprovError(f"{path} holds no record of a host", f"name {ALLOWED}")


def _name_file(path: Path) -> tuple[str, ...]:
    """Return the names by which a file, or a folder, may name its host."""
    if path.is_dir():
        return (path.absolute().name,)
    return path.name.partition(".")[0], path.name, path.absolute().parent.name


def _read_file(path: Path) -> Iterator[Record]:
    contents = archives.read_unpacked(path)
    text = logs.unquote(archives.decode_text(contents.data))
    parts = logs.split_by_host(text) if not bug_report.is_one(text) and plain.identify(text)[0] == plain.LOG else {}
    if parts:
        shared = list(outputs.build_shared(str(path), parts, path.stat().st_mtime, cut=contents.cut))
        if not shared:
            raise Unreadable("it is a log without lines of the kernel, or without their times")
        yield from shared
        return
    yield msgspec.structs.replace(_read_single(path, text, cut=contents.cut), places=_name_file(path))


def _read_single(path: Path, text: str, *, cut: bool) -> Record:
    if bug_report.is_one(text):
        return _read_bug_report(text, str(path), cut=cut)
    if text.lstrip().startswith("{") and not logs.is_log(text):
        return captured.parse(text, str(path))
    command, known = plain.identify(text)
    if not command:
        raise Unreadable("it is none of the records that gpuprov knows" + (f"; {outputs.CUT}" if cut else ""))
    if command != plain.LOG:
        kind: Kind = "nvidia-smi -q" if command == plain.SMI else "command output"
        return outputs.build(str(path), "", [outputs.File("", command, known, cut)], kind)
    if lines := logs.kernel_log(text.rpartition("\n")[0] if cut else text, path.stat().st_mtime):
        return Record(
            host=logs.host(text),
            path=str(path),
            kind="kernel log",
            outputs={"container": Output("none\n"), "kernel_log": Output(lines)},
            text=text,
            cut=outputs.CUT if cut else "",
            partial=frozenset({"kernel_log"} if cut else ()),
        )
    raise Unreadable("it is a log without lines of the kernel, or without their times")


class _Folder:
    """The files of a folder or archive that are not records by themselves."""

    def __init__(self, path: Path, hosts: Collection[str]) -> None:
        self.path = path
        self.hosts = hosts
        self.names = _name_file(path)
        self.unread: list[str] = []
        self.total = 0
        self.report: Record | None = None
        self.place = ""
        self.plain: dict[str, bytes | Unreadable] = {}
        self.sos: dict[str, bytes] = {}
        self.pods: list[str] = []
        self.bad: tuple[str, Unreadable] | None = None
        self.has_record = False

    def read(self, members: Iterable[tuple[str, bytes | Unreadable]]) -> Iterator[Record]:
        for name, data in members:
            place = name.rpartition("/")[0]
            if place != self.place:
                yield from self.flush()
                self.place = place
            if record := _read_member(self.path, name, data):
                if self.report is not None:
                    yield self.report
                stem = name.rpartition("/")[2].partition(".")[0]
                folders = [part for part in place.split("/") if part]
                self.report = msgspec.structs.replace(record, places=(stem, *reversed(folders), *self.names))
                continue
            self.keep(name, data)
        yield from self.flush()

    def keep(self, name: str, data: bytes | Unreadable) -> None:
        if sosreport.is_read(name) or _OPERATOR_LOG.search(name):
            if isinstance(data, Unreadable):
                self.bad = self.bad or (name, data)
            elif _OPERATOR_LOG.search(name):
                self.pods.append(archives.decode_text(data))
            else:
                self.sos[name] = data
        elif outputs.is_one(name, data):
            self.plain[name] = data
        else:
            self.unread.append(name)
            return
        self.total += 0 if isinstance(data, Unreadable) else len(data)
        if self.total > archives.TOTAL:
            raise Unreadable(f"what is read of it is larger than {archives.TOTAL >> 20} MiB")

    def is_wanted(self, name: str) -> bool:
        """Return whether a file is looked at."""
        if _is_wanted(name):
            return True
        self.unread.append(name)
        return False

    def flush(self) -> Iterator[Record]:
        """Yield the records of one folder in it: what others say of the host of its only report goes to that report."""
        files, self.plain = self.plain, {}
        report, self.report = self.report, None
        records = outputs.combine(str(self.path), self.place, files, self.names, self.hosts)
        if (
            report is not None
            and len(records) == 1
            and records[0].host in ("", self.place, report.host)
            and not (records[0].fault or records[0].shared)
        ):
            beside = records.pop()
            report = msgspec.structs.replace(
                report,
                outputs={**beside.outputs, **report.outputs},
                cut="; ".join(part for part in (report.cut, beside.cut) if part),
                partial=beside.partial - report.outputs.keys(),
                places=tuple(dict.fromkeys((*report.places, *beside.places))),
            )
        for record in (*([report] if report is not None else []), *records):
            self.has_record = True
            yield record


def _read_folder(path: Path, hosts: Collection[str], note: Callable[[str], None]) -> Iterator[Record]:
    folder = _Folder(path, hosts)
    cut = ""
    walk = archives.walk_folder if path.is_dir() else archives.list_members
    name_in = str if path.is_dir() else _strip_top
    members = ((name_in(name), data) for name, data in walk(path, lambda name: folder.is_wanted(name_in(name))))
    try:
        yield from folder.read(members)
    except Cut:
        cut = CUT
        yield from (msgspec.structs.replace(record, cut=record.cut or CUT) for record in folder.flush())
    if sosreport.is_one(set(folder.sos)):
        folder.has_record = True
        yield msgspec.structs.replace(_read_sosreport(folder.sos, str(path), cut), places=folder.names)
    elif unread := [*folder.unread, *folder.sos]:
        more = f" and {len(unread) - SHOWN} more" if len(unread) > SHOWN else ""
        note(
            f"{path}: not read, since they are none of the records that gpuprov knows: "
            f"{', '.join(unread[:SHOWN])}{more}"
        )
    if folder.pods and not folder.has_record:
        folder.has_record = True
        yield Record(host="", path=str(path), kind="bug report", outputs={}, text="\n".join(folder.pods), cut=cut)
    if folder.bad and not folder.has_record:
        raise Unreadable(f"{folder.bad[0]}: {folder.bad[1]}")
    if cut and not folder.has_record:
        raise Unreadable("it was cut off before the first record in it")


def _read_member(path: Path, name: str, data: bytes | Unreadable) -> Record | None:
    """Read a file of a folder or archive as a record; None if it is not a record. One that cannot be read affects only
    its own host."""
    place, file = f"{path}/{name}", name.rpartition("/")[2]
    match = _BUG_REPORT.search(name)
    is_report, is_capture = match is not None, _CAPTURE.match(file) is not None
    if not (is_report or is_capture):
        is_report, is_capture = _look_into(name, data)
    kind: Kind = "bug report" if is_report else "capture"
    if not (is_report or is_capture):
        return None
    try:
        if isinstance(data, Unreadable):
            raise data
        contents = archives.unpack_inner(data)
        text = archives.decode_text(contents.data)
        if is_capture:
            return captured.parse(text, place)
        node = (match and match[1]) or ""
        return _read_bug_report(text, place, node, cut=contents.cut) if bug_report.is_one(text) else None
    except Unreadable as error:
        host = (match[1] or "") if match else captured.host_of(file) if _CAPTURE.match(file) else ""
        return Record(host=host, path=place, kind=kind, outputs={}, fault=str(error))


def _look_into(name: str, data: bytes | Unreadable) -> tuple[bool, bool]:
    """Return whether a file of another name is a bug report, or a capture, by its text."""
    if isinstance(data, Unreadable) or not outputs.is_placed(name):
        return False, False
    try:
        head = archives.decode_text(archives.unpack_head(data, 4096))
    except Unreadable:
        return False, False
    return bug_report.is_one(head), captured.is_one(head)


def _is_wanted(name: str) -> bool:
    return bool(
        _BUG_REPORT.search(name)
        or _CAPTURE.match(name.rpartition("/")[2])
        or _OPERATOR_LOG.search(name)
        or sosreport.is_read(name)
        or outputs.is_placed(name)
    )


def _strip_top(name: str) -> str:
    """Return a member's name without the folder that the archive was made from, where it is a record only so."""
    top, _, rest = name.partition("/")
    return rest if not _is_wanted(name) and not top.startswith("sosreport") and _is_wanted(rest) else name


def _read_bug_report(text: str, path: str, node: str = "", *, cut: bool = False) -> Record:
    """Read a bug report. `node`: the name that a must-gather gives the file; inside, the driver's pod has another
    name."""
    pieces = adapt.whole(bug_report.pieces(text))
    return Record(
        host=node or bug_report.host(text),
        path=path,
        kind="bug report",
        outputs=outputs.convert(pieces),
        read_at=bug_report.seconds(bug_report.date(text)),
        text=text,
        readable=READABLE,
        cut=pieces.cut or (outputs.CUT if cut else ""),
    )


def _read_sosreport(tree: dict[str, bytes], path: str, cut: str) -> Record:
    pieces = adapt.whole(sosreport.pieces(tree, cut))
    return Record(
        host=sosreport.host(tree),
        path=path,
        kind="sosreport",
        outputs=outputs.convert(pieces),
        text=sosreport.logs(tree),
        readable=READABLE,
        cut=pieces.cut,
    )
