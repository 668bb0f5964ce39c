"""Files as resources: compared by kind, text, mode, owner, and by how systemd has them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

import msgspec

from gpuprov.onhost import lines
from gpuprov.onhost.files import PYTHON, own_folders
from gpuprov.onhost.unit_files import shadows, unit_of, unread
from gpuprov.probe.base import ProbeFailed
from gpuprov.probe.host.contents import Contents, Entry
from gpuprov.resources.difference import Difference

ABSENT, ANOTHER_TEXT = "absent", "another text"
KINDS = {"l": "a symbolic link", "d": "a folder", "p": "a pipe", "s": "a socket", "b": "a device", "c": "a device"}
PLAIN, PROGRAM = 0o644, 0o755


class File(msgspec.Struct, frozen=True):
    """A file of root's with this text. In a unit's text PYTHON stands for an interpreter that the host has. `differs`: how the
    host's text differs, in words, where the facts say so. `optional`: of a drop-in, a host to which gpuprov was never applied does
    without. `by_meaning`: another check compares the text, by what it means."""

    path: str
    text: str
    mode: int = PLAIN
    differs: str = ""
    optional: bool = False
    by_meaning: bool = False


class Program(msgspec.Struct, frozen=True):
    """A file of root's with the text of a Python module of gpuprov's, which the role carries under this name."""

    path: str
    name: str


class Absent(msgspec.Struct, frozen=True):
    """A path at which nothing should be."""

    path: str


class Lines(msgspec.Struct, frozen=True, kw_only=True):
    """A file of others in which these keys have these values, as lines KEY=VALUE, and which root alone may write. `made`: one that is
    not there is made. `optional`: a host to which gpuprov was never applied does without. `why`: what the values are for, in words."""

    path: str
    keys: Mapping[str, str]
    made: bool = False
    optional: bool = False
    why: str = ""


@lru_cache(maxsize=4096)
def _sum(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def differences(resources: Iterable[object], found: Contents) -> Iterator[Difference]:
    """Compare the files among these resources: kind, text, mode, owner, and units as systemd has loaded them; files that should not be
    there, and others beside programs. Raises ProbeFailed where one of them was not read."""
    given = list(resources)
    wanted = [one for one in given if isinstance(one, File)]
    absent = [one.path for one in given if isinstance(one, Absent)]
    shared = [one for one in given if isinstance(one, Lines)]
    ours = [one.path for one in wanted]
    asked = (*ours, *absent, *(one.path for one in shared))
    if unread := [path for path in asked if path not in found.entries and path not in found.missing]:
        raise ProbeFailed(f"{unread[0]} was not read on the host")
    for one in wanted:
        if told := _file(one, found):
            yield Difference(one.path, told, lacking=told == ABSENT)
        else:
            yield from _loaded(one, found, ours)
    for path in absent:
        if path in found.entries:
            yield Difference(path, "there", "removed")
    yield from filter(None, (_lines(one, found) for one in shared))
    own = own_folders(ours)
    for path, entry in found.entries.items():
        if path in own and (told := _rights(entry, PROGRAM)):
            yield Difference(path, told)
        elif entry.kind != "d" and path not in ours and any(path.startswith(f"{folder}/") for folder in own):
            yield Difference(path, "not one of gpuprov's", "removed")


def _file(wanted: File, found: Contents) -> str:
    entry = found.entries.get(wanted.path)
    if entry is None:
        return ABSENT
    if entry.kind != "f":
        return KINDS.get(entry.kind, "no file")
    if wanted.by_meaning:
        return _rights(entry, wanted.mode)
    texts = [wanted.text]
    if PYTHON in wanted.text:
        texts = [
            wanted.text.replace(PYTHON, python)
            for python in found.pythons.get(wanted.path, ())
            if python in found.sound
        ]
        if not texts and (given := found.pythons.get(wanted.path)):
            return f"starts {given[0]}, which is not there, or can be changed by others than root"
    if entry.sum not in map(_sum, texts):
        return f"{ANOTHER_TEXT} ({wanted.differs})" if wanted.differs else ANOTHER_TEXT
    return _rights(entry, wanted.mode)


def _lines(wanted: Lines, found: Contents) -> Difference | None:
    entry, path = found.entries.get(wanted.path), wanted.path
    if entry is not None and entry.kind != "f":
        return Difference(path, KINDS.get(entry.kind, "no file"), "refused: move it away")
    if entry is not None and path not in found.texts:
        raise ProbeFailed(f"{path} cannot be read, or is larger than {lines.LARGEST} KiB", "see what is in it")
    wrong = lines.differing(found.texts.get(path, ""), wanted.keys)
    if entry is not None and not wrong:
        return Difference(path, told) if (told := _rights(entry, lines.allowed(entry.mode))) else None
    before = ", ".join(line.strip()[:200] or f"{key} is not set" for key, line in wrong.items())
    told = before if entry else ABSENT
    after = ", ".join(f"{key}={wanted.keys[key]}" for key in wrong)
    lacking = not any(wrong.values()) and len(wrong) == len(wanted.keys)
    return Difference(path, f"{told} ({wanted.why})" if wanted.why else told, after, lacking)


def _rights(entry: Entry, mode: int) -> str:
    if (entry.owner, entry.group) != (0, 0):
        return f"of {entry.owner}:{entry.group}, not root's"
    return f"mode {entry.mode:04o}, not {mode:04o}" if entry.mode != mode else ""


def _loaded(wanted: File, found: Contents, ours: list[str]) -> Iterator[Difference]:
    """What systemd makes of a unit or a drop-in that is on the host as it should be."""
    unit = found.units.get(unit_of(wanted.path))
    if unit is None:
        return
    if told := unread(wanted.path, unit):
        yield Difference(wanted.path, told, "read by systemd")
    for path, keys in shadows(wanted.path, wanted.text, unit, found.drop_ins, ours).items():
        settings = ", ".join(key.partition(".")[2] for key in keys)
        yield Difference(path, f"sets {settings} in place of {wanted.path}", "set aside")
