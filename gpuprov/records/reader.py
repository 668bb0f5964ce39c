"""Reader of records at a path: one file or archive, or a folder of them. The kind is determined by the contents, never by the
name."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from gpuprov.errors import GpuprovError
from gpuprov.probe.base import Output
from gpuprov.reading import Unreadable, archives, explain_refusal
from gpuprov.records import adapt, bug_report, captured, logs, sosreport
from gpuprov.records.model import Kind, Pieces, Record

_BUG_REPORT = re.compile(r"(?:\A|/)nvidia-bug-report(?:_([^/]+?))?\.log(?:\.gz|\.xz)?\Z")
_CAPTURE = re.compile(r"[^/]+\.capture\.json\Z")
_OPERATOR_LOG = re.compile(r"(?:\A|/)(?:gpu_(?:operand|operator)_pod[^/]*|gpu_device_usage_[^/]*)\.log\Z")
ALLOWED = (
    "an nvidia-bug-report.log(.gz), an sosreport (archive or folder), a must-gather of the GPU operator, "
    "what gpuprov capture wrote, a kernel log (dmesg, journalctl, journalctl -o json), or nvidia-smi -q"
)


SMI_LOG = "==NVSMI LOG=="
"""The first line of nvidia-smi -q."""
CUT = "the archive that it is from was cut off"
READABLE = frozenset({"container", *adapt.PROBES})
"""Probes that a bug report or an sosreport may answer."""


def read(path: Path) -> list[Record]:
    """Read every record at the path, by host. Raises GpuprovError if there is none, or it cannot be read."""
    try:
        if what := explain_refusal(str(path)):
            raise Unreadable(f"this is {what}", "a file or folder")
        records = _read_folder(path) if path.is_dir() or archives.is_archive(path) else [_read_single(path)]
    except OSError as error:
        raise GpuprovError(f"{path} cannot be read: {error.strerror}", f"name {ALLOWED}") from error
    except Unreadable as error:
        raise GpuprovError(f"{path} cannot be read: {error}", f"name {ALLOWED}") from error
    if not records:
        raise GpuprovError(f"{path} holds no record of a host", f"name {ALLOWED}")
    return sorted(records, key=lambda record: record.host)


def _read_single(path: Path) -> Record:
    text = archives.decode_text(archives.read_unpacked(path))
    if bug_report.is_one(text):
        return _read_bug_report(text, str(path))
    if text.lstrip().startswith("{") and not logs.is_one(text):
        return captured.parse(text, str(path))
    if SMI_LOG in text[:2000]:
        return _read_pieces(Pieces(commands={adapt.SMI: text}), "nvidia-smi -q", path, text)
    if logs.is_one(text):
        if outputs := logs.kernel_log(text, path.stat().st_mtime):
            return Record(
                host=logs.host(text),
                path=str(path),
                kind="kernel log",
                outputs={"container": Output("none\n"), "kernel_log": Output(outputs)},
                text=text,
            )
        raise Unreadable("it is a log without lines of the kernel, or without their times")
    raise Unreadable("it is none of the records that gpuprov knows")


def _read_pieces(pieces: Pieces, kind: Kind, path: Path, text: str) -> Record:
    pieces = adapt.whole(pieces)
    return Record(host="", path=str(path), kind=kind, outputs=_build_outputs(pieces), text=text, cut=pieces.cut)


def _read_folder(path: Path) -> list[Record]:
    tree = archives.read_tree(path, _is_wanted)
    texts = {name: data for name, data in tree.items() if not isinstance(data, Unreadable)}
    records = [record for name, data in tree.items() if (record := _read_member(path, name, data))]
    if sosreport.is_one(set(texts)):
        members = {name: data for name, data in texts.items() if sosreport.wanted(name)}
        records.append(_read_sosreport(members, str(path), CUT if tree.cut else ""))
    if tree.cut:
        records = [msgspec.structs.replace(record, cut=record.cut or CUT) for record in records]
    pods = "\n".join(archives.decode_text(data) for name, data in texts.items() if _OPERATOR_LOG.search(name))
    if pods and not records:
        records.append(Record(host="", path=str(path), kind="bug report", outputs={}, text=pods))
    if not records and (
        bad := next(((name, content) for name, content in tree.items() if isinstance(content, Unreadable)), None)
    ):
        raise Unreadable(f"{bad[0]}: {bad[1]}")
    if tree.cut and not records:
        raise Unreadable("it was cut off before the first record in it")
    return records


def _read_member(path: Path, name: str, data: bytes | Unreadable) -> Record | None:
    """Read a file of a folder or archive as a record; None if it is no record. One that cannot be read affects only its own
    host."""
    place, file = f"{path}/{name}", name.rpartition("/")[2]
    match = _BUG_REPORT.search(name)
    kind: Kind = "bug report" if match else "capture"
    if not match and not _CAPTURE.match(file):
        return None
    try:
        if isinstance(data, Unreadable):
            raise data
        if not match:
            return captured.parse(archives.decode_text(data), place)
        text = archives.decode_text(archives.unpack_inner(data))
        return _read_bug_report(text, place, match[1] or "") if bug_report.is_one(text) else None
    except Unreadable as error:
        host = (match[1] or "") if match else captured.host_of(file)
        return Record(host=host, path=place, kind=kind, outputs={}, fault=str(error))


def _is_wanted(name: str) -> bool:
    return bool(
        _BUG_REPORT.search(name)
        or _CAPTURE.match(name.rpartition("/")[2])
        or _OPERATOR_LOG.search(name)
        or sosreport.wanted(name)
    )


def _read_bug_report(text: str, path: str, node: str = "") -> Record:
    """Read a bug report. `node`: the name that a must-gather gives the file; inside, the driver's pod has another name."""
    pieces = adapt.whole(bug_report.pieces(text))
    return Record(
        host=node or bug_report.host(text),
        path=path,
        kind="bug report",
        outputs=_build_outputs(pieces),
        read_at=bug_report.seconds(bug_report.date(text)),
        text=text,
        readable=READABLE,
        cut=pieces.cut,
    )


def _read_sosreport(tree: dict[str, bytes], path: str, cut: str) -> Record:
    pieces = adapt.whole(sosreport.pieces(tree, cut))
    return Record(
        host=sosreport.host(tree),
        path=path,
        kind="sosreport",
        outputs=_build_outputs(pieces),
        text=sosreport.logs(tree),
        readable=READABLE,
        cut=pieces.cut,
    )


def _build_outputs(pieces: Pieces) -> dict[str, Output]:
    """Convert the pieces to outputs. A report does not say whether it was made in a container; it is taken for one of a host."""
    return {"container": Output("none\n"), **adapt.outputs(pieces)}
