"""Files that a capability writes: the one list that its role brings about, and that verify compares by content."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from gpuprov.capabilities.base import Capability, Change, Check, Context, Outcome, fail, not_asked, ok
from gpuprov.onhost.files import PYTHON, own_folders
from gpuprov.onhost.unit_files import shadows, unit_of, unread
from gpuprov.probe.base import Probe, ProbeFailed
from gpuprov.probe.host import contents, house
from gpuprov.probe.host.contents import Contents, Entry
from gpuprov.spec.model import HostSpec

ANOTHER_TEXT = "another text"
KINDS = {"l": "a symbolic link", "d": "a folder", "p": "a pipe", "s": "a socket", "b": "a device", "c": "a device"}
PLAIN, PROGRAM = 0o644, 0o755


class File(msgspec.Struct, frozen=True):
    """A file of root's with this text; None: another check compares it. In a unit's text PYTHON stands for an interpreter that the
    host has."""

    path: str
    text: str | None
    mode: int = PLAIN


class Difference(msgspec.Struct, frozen=True):
    """A path, what is wrong with it in words, and what apply makes of it."""

    path: str
    before: str
    after: str = "written"


def _carried(capability: Capability) -> dict[str, Path]:
    """The modules that the role takes to hosts, by the names that their files have there."""
    found = (find_spec(module) for module in capability.carried)
    return {Path(one.origin).name: Path(one.origin) for one in found if one and one.origin}


@lru_cache(maxsize=256)
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@lru_cache(maxsize=4096)
def _sum(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def files(capability: Capability, made: Mapping[str, Any]) -> list[File]:
    """The files among the values that a role gets: `files`, `programs`, `units` by path, and `program`, files that it carries."""
    carried = _carried(capability) if made.get("program") else {}
    return [
        *(File(path, text) for path, text in made.get("files", {}).items()),
        *(File(path, None) for path in made.get("judged", ())),
        *(File(path, text, PROGRAM) for path, text in made.get("programs", {}).items()),
        *(File(path, text) for path, text in made.get("units", {}).items()),
        *(File(path, _text(carried[name])) for path, name in made.get("program", {}).items()),
    ]


def differences(
    wanted: Iterable[File], absent: Iterable[str], lines: Iterable[str], found: Contents
) -> Iterator[Difference]:
    """What differs on a host: of each file its kind, text, mode and owner, and how systemd has it; files that should not be there;
    of files in which only lines are gpuprov's, who may write them."""
    wanted, absent = list(wanted), list(absent)
    ours = [one.path for one in wanted]
    if unread := [path for path in (*ours, *absent) if path not in found.entries and path not in found.missing]:
        raise ProbeFailed(f"{unread[0]} was not read on the host")
    for one in wanted:
        if told := _file(one, found):
            yield Difference(one.path, told)
        else:
            yield from _loaded(one, found, ours)
    for path in absent:
        if path in found.entries:
            yield Difference(path, "there", "removed")
    for path in lines:
        entry = found.entries.get(path)
        if entry is not None and entry.kind == "f" and (told := _rights(entry, entry.mode & ~0o022)):
            yield Difference(path, told)
    own = own_folders(ours)
    for path, entry in found.entries.items():
        if path in own and (told := _rights(entry, PROGRAM)):
            yield Difference(path, told)
        elif entry.kind != "d" and path not in ours and any(path.startswith(f"{folder}/") for folder in own):
            yield Difference(path, "not one of gpuprov's", "removed")


def _file(wanted: File, found: Contents) -> str:
    entry = found.entries.get(wanted.path)
    if entry is None:
        return "absent"
    if entry.kind != "f":
        return KINDS.get(entry.kind, "no file")
    if wanted.text is None:
        return _rights(entry, wanted.mode)
    texts = [wanted.text]
    if PYTHON in wanted.text:
        texts = [
            wanted.text.replace(PYTHON, python)
            for python in found.pythons.get(wanted.path, ())
            if python in found.sound
        ]
    if entry.sum not in map(_sum, texts):
        return ANOTHER_TEXT
    return _rights(entry, wanted.mode)


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
    for path, keys in shadows(wanted.path, wanted.text or "", unit, found.drop_ins, ours).items():
        settings = ", ".join(key.partition(".")[2] for key in keys)
        yield Difference(path, f"sets {settings} in place of {wanted.path}", "set aside")


def asks(host: HostSpec, known: Mapping[str, Capability]) -> dict[str, str]:
    """What the probe reads for a host with this spec: every path that its capabilities may write, and their units."""
    paths: dict[str, None] = {}
    for name, block in host.capabilities.items():
        if name in known and (written := known[name].written):
            paths |= dict.fromkeys(written.paths(host, block))
    units = dict.fromkeys(filter(None, map(unit_of, paths)))
    return {"paths": "\n".join(paths), "folders": "\n".join(sorted(own_folders(paths))), "units": "\n".join(units)}


def answer(capability: Capability, ctx: Context[Any]) -> Outcome:
    """Whether all that the capability writes is there as it was written."""
    written = capability.written
    assert written is not None
    made = written.make(ctx)
    wanted = files(capability, made)
    lines = written.lines(ctx)
    known = ctx.facts.get(contents.CONTENTS)
    found = list(differences(wanted, made.get("absent", ()), lines, known))
    if not wanted and not found:
        return not_asked("the spec asks for no file of its own")
    receipt = ctx.facts.known(house.RECEIPT)
    never = receipt is None or (not receipt.damaged and capability.name not in receipt.capabilities)
    if never and found and all(one.path in known.missing for one in found):
        return not_asked(f"gpuprov has not applied it here, which writes {len(wanted)} files")
    expected = f"{len(wanted)} file{'' if len(wanted) == 1 else 's'} as gpuprov writes them"
    if not found:
        return ok(expected)
    changes = [Change(kind="file", name=one.path, before=one.before, after=one.after) for one in found]
    unit = unit_of(found[0].path)
    show = f"ls -l {found[0].path}" + (f"; systemctl cat {unit}" if unit else "")
    return fail(expected, "; ".join(described(found)), "gpuprov apply", changes=changes, evidence=show)


def described(found: Iterable[Difference]) -> Iterator[str]:
    """What is wrong with which paths, those of one folder together as a shell takes them: FOLDER/{A,B}: WHAT."""
    groups: dict[tuple[str, str], list[str]] = {}
    for one in found:
        folder, _, name = one.path.rpartition("/")
        groups.setdefault((folder, one.before), []).append(name)
    for (folder, what), names in groups.items():
        yield f"{folder}/{names[0] if len(names) == 1 else '{' + ','.join(names) + '}'}: {what}"


def with_contents(capabilities: Sequence[Capability]) -> tuple[Capability, ...]:
    """The capabilities, each that writes files with the check that all of them are there as it writes them."""
    known = {one.name: one for one in capabilities}
    probe = replace(contents.CONTENTS, asks=lambda host: asks(host, known))
    return tuple(
        replace(one, checks=(*one.checks, _check(one, one.written.check, (*one.written.probes, probe, house.RECEIPT))))
        if one.written
        else one
        for one in capabilities
    )


def without_spec(probes: Iterable[Probe[Any]], known: Mapping[str, Capability]) -> tuple[Probe[Any], ...]:
    """The probes, each once, as a host is read whose spec is not known: of gpuprov's own files, all that any spec has written."""
    blocks = {name: one.fragment() for name, one in known.items() if one.written}
    found = {probe.name: probe for probe in probes}
    if (probe := found.get(contents.CONTENTS.name)) is not None:
        found[probe.name] = probe.of(HostSpec(name="", capabilities=blocks))
    return tuple(found.values())


def _check(capability: Capability, check: str, probes: tuple[Probe[Any], ...]) -> Check:
    return Check(
        f"{capability.name}.{check}",
        (),
        probes,
        lambda ctx: answer(capability, ctx),
        "next-boot",
        "Every file, unit and program that gpuprov writes for it is there with that text, root's, with its mode, and systemd has read "
        "it; no drop-in of others changes what it says.",
        contents.CONTENTS.evidence,
    )
