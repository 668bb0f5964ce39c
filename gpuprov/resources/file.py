"""Files as resources: compared by kind, text, mode, owner, and by how systemd has them."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from types import ModuleType

import msgspec

from gpuprov.facts.probes.base import ProbeFailed
from gpuprov.facts.probes.host.contents import Contents, Entry
from gpuprov.host_code import json_members, lines
from gpuprov.host_code.files import PYTHON, select_guarded_folders, select_own_folders
from gpuprov.host_code.unit_files import derive_unit, explain_unread, find_shadows, is_instance
from gpuprov.resources.difference import Difference

ABSENT, ANOTHER_TEXT = "absent", "another text"
KINDS = {"l": "a symbolic link", "d": "a folder", "p": "a pipe", "s": "a socket", "b": "a device", "c": "a device"}
PLAIN, PROGRAM = 0o644, 0o755


class File(msgspec.Struct, frozen=True):
    """A file of root's with this text. In a unit's text PYTHON stands for an interpreter that the host has."""

    path: str
    text: str
    mode: int = PLAIN
    # How the host's text differs, in words, where the facts say so.
    differs: str = ""
    # Of a drop-in, a host to which gpuprov was never applied does without.
    optional: bool = False
    # Another check compares the text, by what it means.
    by_meaning: bool = False


class Program(msgspec.Struct, frozen=True):
    """A file of root's with the text of a Python module of gpuprov's, which the role carries under this name."""

    path: str
    name: str


class Absent(msgspec.Struct, frozen=True):
    """A path at which nothing should be."""

    path: str


class Lines(msgspec.Struct, frozen=True, kw_only=True):
    """A file of others in which these keys have these values, and which root alone may write: as lines KEY=VALUE, or in
    a `.json` file as members by dotted path, with the value in JSON."""

    path: str
    keys: Mapping[str, str]
    # One that is not there is made.
    made: bool = False
    # A host to which gpuprov was never applied does without.
    optional: bool = False
    # What the values are for, in words.
    why: str = ""


def editor(path: str) -> ModuleType:
    """Return the module that compares and sets keys in a file of this name."""
    return json_members if path.endswith(json_members.SUFFIX) else lines


def set_keys(path: str, text: str, keys: Mapping[str, str]) -> str | None:
    """Return the text of a file with these values; None for a JSON document that cannot be read, which apply leaves
    alone."""
    try:
        return str(editor(path).with_keys(text, keys))
    except json_members.NotJson:
        return None


@lru_cache(maxsize=4096)
def _sum(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def differences(resources: Iterable[object], contents: Contents) -> Iterator[Difference]:
    """Compare the files among these resources: kind, text, mode, owner, and units as systemd has loaded them; files
    that should not be there, and others beside programs. Raises ProbeFailed where one of them was not read."""
    given = list(resources)
    desired = [resource for resource in given if isinstance(resource, File)]
    absent = [resource.path for resource in given if isinstance(resource, Absent)]
    shared = [resource for resource in given if isinstance(resource, Lines)]
    own_paths = [file.path for file in desired]
    requested = (*own_paths, *absent, *(item.path for item in shared))
    if unread := [path for path in requested if path not in contents.entries and path not in contents.missing]:
        raise ProbeFailed(f"{unread[0]} was not read on the host")
    for file in desired:
        if reason := _read_content(file, contents):
            yield Difference(file.path, reason, lacking=reason == ABSENT)
        elif reason := _describe_rights(contents.entries[file.path], file.mode):
            yield Difference(file.path, reason, same=True)
        else:
            yield from _compare_loaded(file, contents, own_paths)
    for path in absent:
        if path in contents.entries:
            yield Difference(path, "there", "removed")
    yield from filter(None, (_compare_lines(item, contents) for item in shared))
    folders, guarded = select_own_folders(own_paths), select_guarded_folders(own_paths)
    for path, entry in contents.entries.items():
        if path in guarded and (reason := _describe_rights(entry, PROGRAM)):
            yield Difference(path, reason)
        elif entry.kind != "d" and path not in own_paths and any(path.startswith(f"{folder}/") for folder in folders):
            yield Difference(path, "not one of gpuprov's", "removed")


def _read_content(desired: File, contents: Contents) -> str:
    entry = contents.entries.get(desired.path)
    if entry is None:
        return ABSENT
    if entry.kind != "f":
        return KINDS.get(entry.kind, "no file")
    if desired.by_meaning:
        return ""
    texts = [desired.text]
    if PYTHON in desired.text:
        texts = [
            desired.text.replace(PYTHON, python)
            for python in contents.pythons.get(desired.path, ())
            if python in contents.sound
        ]
        if not texts and (given := contents.pythons.get(desired.path)):
            return f"starts {given[0]}, which is not there, or can be changed by others than root"
    if entry.sum not in map(_sum, texts):
        return f"{ANOTHER_TEXT} ({desired.differs})" if desired.differs else ANOTHER_TEXT
    return ""


def _compare_lines(desired: Lines, contents: Contents) -> Difference | None:
    entry, path = contents.entries.get(desired.path), desired.path
    if entry is not None and entry.kind != "f":
        return Difference(path, KINDS.get(entry.kind, "no file"), "refused: move it away")
    if entry is not None and path not in contents.texts:
        raise ProbeFailed(f"{path} cannot be read, or is larger than {lines.LARGEST} KiB", "see what is in it")
    try:
        wrong = editor(path).differing(contents.texts.get(path, ""), desired.keys)
    except json_members.NotJson as error:
        return Difference(path, str(error), "refused: correct it, or install the package that brings it again")
    if entry is not None and not wrong:
        reason = _describe_rights(entry, lines.limit_mode(entry.mode))
        return Difference(path, reason, same=True) if reason else None
    before = ", ".join(line.strip()[:200] or f"{key} is not set" for key, line in wrong.items())
    reason = before if entry else ABSENT
    after = ", ".join(f"{key}={desired.keys[key]}" for key in wrong)
    lacking = not any(wrong.values()) and len(wrong) == len(desired.keys)
    return Difference(path, f"{reason} ({desired.why})" if desired.why else reason, after, lacking)


def _describe_rights(entry: Entry, mode: int) -> str:
    if (entry.owner, entry.group) != (0, 0):
        return f"of {entry.owner}:{entry.group}, not root's"
    return f"mode {entry.mode:04o}, not {mode:04o}" if entry.mode != mode else ""


def _compare_loaded(desired: File, contents: Contents, own_paths: list[str]) -> Iterator[Difference]:
    """Yield differences in systemd's loaded version of a unit or a drop-in that is correct on disk."""
    unit = contents.units.get(derive_unit(desired.path))
    if unit is None:
        return
    if message := explain_unread(desired.path, unit):
        yield Difference(desired.path, message, "read by systemd")
    shadows = find_shadows(desired.path, desired.text, unit, contents.drop_ins, own_paths)
    for name, instance in contents.units.items():
        if is_instance(name, desired.path):
            shadows |= find_shadows(desired.path, desired.text, instance, contents.drop_ins, own_paths)
    for path, keys in shadows.items():
        settings = ", ".join(key.partition(".")[2] for key in keys)
        yield Difference(path, f"sets {settings} in place of {desired.path}", "set aside")
