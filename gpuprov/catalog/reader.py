"""The only reader of the catalogue: YAML in `data/`, typed by msgspec, read at first use.

Importing PyYAML and parsing the two files that every `verify` needs takes about 35 ms, a tenth of reading one host; so
the parsed data is kept between runs under the hash of the file's bytes, and typed again each time.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from gpuprov.core import disk_cache, safe_parse
from gpuprov.core.errors import GpuprovError
from gpuprov.spec.problem import format_path

Confidence = Literal["confirmed", "inferred", "unconfirmed"]

T = TypeVar("T")
# A mistake in the data: its place, the mistake, and what is allowed.
Finding = tuple[tuple[str | int, ...], str, str]

ROOM = "catalog"
# Maximum number of parsed files kept: those of this version and of an earlier one.
KEPT = 128
_DATA = Path(__file__).parent / "data"
_MARKS: Mapping[str, str] = {"confirmed": "", "inferred": "~", "unconfirmed": "?"}

# Maximum number of listed mistakes per file.
SHOWN = 5

LEGEND = "~ inferred, ? unconfirmed"


class Source(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A source of facts; without a URL it is not public or has no address of its own."""

    description: str
    url: str = ""
    # When it was read, where that matters.
    read: str = ""


class Fact(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The common fields of entries: keys of the file's `sources` table, and the confidence of the entry as a whole."""

    source: tuple[str, ...]
    confidence: Confidence = "confirmed"


class Note(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A fact as text, for readers; nothing computes with it."""

    key: str
    text: str


class File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of `data/`: its sources, and facts in words."""

    # Files whose sources it names, too.
    sources_of: tuple[str, ...] = ()
    sources: dict[str, Source]
    facts: tuple[Note, ...] = ()
    notes: tuple[Note, ...] = ()


class BranchFact(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A driver branch ("580") with its own source."""

    branch: str


_loaded: dict[str, object] = {}


def load(name: str, kind: type[T]) -> T:
    """The catalogue file `data/<name>.yaml` as `kind`; one parse per process.

    Raises GpuprovError with every mistake: file, line, row, field, value, what is allowed.
    """
    cached = _loaded.get(name)
    if isinstance(cached, kind):
        return cached
    where = f"gpuprov/catalog/data/{name}.yaml"
    try:
        text = (_DATA / f"{name}.yaml").read_bytes()
    except OSError as error:
        raise GpuprovError(f"{where}: cannot be read: {error}", choose_fix("restore the file")) from error
    kept = f"{name}-{hashlib.sha256(text).hexdigest()}"
    before = keep_name(kept)
    plain = read_yaml(text, where) if before is None else before
    _loaded[name] = data = convert_to(plain, kind, where, text)
    if before is None:
        disk_cache.write(ROOM, kept, msgspec.msgpack.encode(plain), KEPT)
    return data


def keep_name(name: str) -> object:
    body = disk_cache.read(ROOM, name)
    try:
        return None if body is None else msgspec.msgpack.decode(body)
    except msgspec.MsgspecError:
        return None


def choose_fix(of_contributor: str = "correct the file") -> str:
    """Return the fix for a mistake in a file: in a checkout the contributor made it."""
    checkout = (_DATA.parents[2] / "pyproject.toml").is_file()
    return of_contributor if checkout else "a file of the installation is damaged: reinstall gpuprov"


def read_yaml(text: str | bytes, where: str) -> object:
    """Return plain data; `where` names the file in errors, including those for duplicate keys."""
    try:
        return safe_parse.parse_placed_yaml(text, safe_parse.FILE)[0]
    except safe_parse.Unreadable as error:
        place = f"{where}:{error.line}" if error.line else where
        raise GpuprovError(f"{place}: {error}", choose_fix()) from error


def convert_to(plain: object, kind: type[T], where: str, text: str | bytes = b"") -> T:
    """Convert plain data to `kind`; `where` names the file in errors, and `text`, from which the data was read, gives
    the line numbers."""
    twice = _find_duplicates(plain)
    try:
        data = msgspec.convert(plain, kind)
    except msgspec.ValidationError as error:
        from gpuprov.spec import build

        mistakes = build.list_mistakes(plain, kind) or [((), str(error), "")]
        raise _describe(plain, [*mistakes, *twice], where, text) from error
    if twice:
        raise _describe(plain, twice, where, text)
    return data


def _find_duplicates(plain: object) -> list[Finding]:
    """List rows of a table that repeat an earlier row's key."""
    findings: list[Finding] = []
    for table, rows in plain.items() if isinstance(plain, dict) else ():
        keys = [row.get("key") if isinstance(row, dict) else None for row in rows] if isinstance(rows, list) else []
        findings += [
            ((table, number), f"{table}[{number}] has the key of an earlier row", "allowed: one row for each key")
            for number, key in enumerate(keys)
            if isinstance(key, str) and keys.index(key) < number
        ]
    return findings


def _describe(plain: object, findings: list[Finding], where: str, text: str | bytes) -> GpuprovError:
    """Return the error with all mistakes of a file, a line each: its place, the row by its name, the value, and the
    permitted values."""
    places = safe_parse.parse_placed_yaml(text, safe_parse.FILE)[1] if text else {}
    lines = []
    for path, message, allowed in findings[:SHOWN]:
        position = next((places[path[:n]] for n in range(len(path), 0, -1) if path[:n] in places), None)
        row = max((n for n, part in enumerate(path, 1) if isinstance(part, int)), default=0)
        if row:
            message = message.replace(format_path(path[:row]), _name_rows(plain, path[:row]))
        lines.append(f"{where}{f':{position[0]}' if position else ''}: {message}{f'; {allowed}' if allowed else ''}")
    more = [f"and {len(findings) - SHOWN} more"] if len(findings) > SHOWN else []
    return GpuprovError("\n".join([*lines, *more]), choose_fix())


def _name_rows(plain: Any, path: tuple[str | int, ...]) -> str:
    """Return `gpus[M40].pci_ids[10de:17fd]` for `gpus[3].pci_ids[0]`: each row by its key, or by its first text."""
    words, row = "", plain
    for part in path:
        row = row[part]
        if isinstance(part, str):
            words += f".{part}" if words else part
            continue
        texts = [value for value in row.values() if isinstance(value, str)] if isinstance(row, dict) else []
        key = row.get("key") if isinstance(row, dict) else None
        words += f"[{key if isinstance(key, str) else texts[0][:60] if texts else part}]"
    return words


def mark(value: object, confidence: Confidence) -> str:
    """The value as text, followed by ~ when inferred and ? when unconfirmed; an empty value stays "-" or "?"."""
    text = str(value) if value not in (None, "", (), "unknown") else "-"
    return text + _MARKS[confidence]


def find_weakest(*confidences: Confidence) -> Confidence:
    """Return the lowest confidence; confirmed if there is none."""
    order: tuple[Confidence, ...] = ("unconfirmed", "inferred", "confirmed")
    return next((level for level in order if level in confidences), "confirmed")
