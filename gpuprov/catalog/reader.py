"""The one reader of the catalogue: YAML in `data/`, typed by msgspec, read at first use.

Importing PyYAML and parsing the two files that every `verify` needs takes about 35 ms, a tenth of reading one host; so the
parsed data is kept between runs under the hash of the file's bytes, and typed anew each time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from gpuprov import keep, reading
from gpuprov.errors import GpuprovError

Confidence = Literal["confirmed", "inferred", "unconfirmed"]

T = TypeVar("T")

ROOM = "catalog"
_DATA = Path(__file__).parent / "data"
_MARKS: Mapping[str, str] = {"confirmed": "", "inferred": "~", "unconfirmed": "?"}

UNCHANGED = "correct the file; in an installation whose files nobody has changed, reinstall gpuprov"
MOST = 5
"""Mistakes of a file that are told."""

LEGEND = "~ inferred, ? unconfirmed"


class Source(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where facts come from; without a url the source is not public or has no address of its own."""

    description: str
    url: str = ""


class Fact(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every entry has: keys of the file's `sources` table, and how sure the entry is as a whole."""

    source: tuple[str, ...]
    confidence: Confidence = "confirmed"


class Note(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A fact in words, for readers; nothing computes with it."""

    key: str
    text: str


class File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of `data/`: where its facts come from, and what is known in words. `sources_of`: files whose sources it names, too."""

    sources_of: tuple[str, ...] = ()
    sources: dict[str, Source]
    facts: tuple[Note, ...] = ()
    notes: tuple[Note, ...] = ()


class BranchFact(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A driver branch ("580") with a source of its own."""

    branch: str


_loaded: dict[str, object] = {}


def load(name: str, kind: type[T]) -> T:
    """The catalogue file `data/<name>.yaml` as `kind`; one parse per process.

    Raises GpuprovError, with file and field, for data that is not what `kind` says.
    """
    found = _loaded.get(name)
    if isinstance(found, kind):
        return found
    where = f"gpuprov/catalog/data/{name}.yaml"
    try:
        text = (_DATA / f"{name}.yaml").read_bytes()
    except OSError as error:
        raise GpuprovError(f"{where}: cannot be read: {error}", "reinstall gpuprov") from error
    kept = f"{name}-{hashlib.sha256(text).hexdigest()}"
    plain = _kept(kept)
    if plain is None:
        plain = read_yaml(text, where)
        keep.write(ROOM, kept, msgspec.msgpack.encode(plain))
    _loaded[name] = data = typed(plain, kind, where)
    return data


def _kept(name: str) -> object:
    body = keep.read(ROOM, name)
    try:
        return None if body is None else msgspec.msgpack.decode(body)
    except msgspec.MsgspecError:
        return None


def read_yaml(text: str | bytes, where: str) -> object:
    """Plain data; `where` names the file in errors."""
    try:
        return reading.yaml(text, reading.FILE)
    except reading.Unreadable as error:
        raise GpuprovError(f"{where}: {error}", UNCHANGED) from error


def typed(plain: object, kind: type[T], where: str) -> T:
    """Plain data as `kind`; `where` names the file in errors."""
    try:
        return msgspec.convert(plain, kind)
    except msgspec.ValidationError as error:
        raise _mistaken(plain, kind, where, str(error)) from error


def _mistaken(plain: object, kind: type[T], where: str, otherwise: str) -> GpuprovError:
    """What is wrong with a file: the row by its name, the value, and what is allowed."""
    from gpuprov.spec import build

    found = build.mistakes(plain, kind)
    told = [f"{_row(plain, path)}{message} ({hint})" for path, message, hint in found[:MOST]] or [otherwise]
    told += [f"and {len(found) - MOST} more"] * (len(found) > MOST)
    return GpuprovError(f"{where}: {'; '.join(told)}", UNCHANGED)


def _row(plain: object, path: tuple[str | int, ...]) -> str:
    """The innermost row of a list on the way to a value, by its first text; empty where there is none."""
    row: object = None
    here: Any = plain
    for part in path:
        try:
            here = here[part]
        except (LookupError, TypeError):  # a key that is missing
            break
        row = here if isinstance(part, int) else row
    texts = [(key, value) for key, value in row.items() if isinstance(value, str)] if isinstance(row, dict) else []
    return f'the row with {texts[0][0]} "{texts[0][1][:60]}": ' if texts else ""


def mark(value: object, confidence: Confidence) -> str:
    """The value as text, followed by ~ when inferred and ? when unconfirmed; an empty value stays "-" or "?"."""
    text = str(value) if value not in (None, "", (), "unknown") else "-"
    return text + _MARKS[confidence]


def weakest(*confidences: Confidence) -> Confidence:
    """The least sure of them; confirmed when there is none."""
    order: tuple[Confidence, ...] = ("unconfirmed", "inferred", "confirmed")
    return next((level for level in order if level in confidences), "confirmed")
