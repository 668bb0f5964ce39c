"""What a running unit has read, and whether that has another content now.

A change time alone says too much: it also moves with mode, owner and `touch`. A program that still runs from its file
has not changed, as nobody can write to it then. Of the files that gpuprov writes, the content is noted with the time at
which it came. Of all others the change time counts.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import Iterable, Iterator, Mapping, NamedTuple

from . import files

NOTES = "/var/lib/gpuprov/written.json"
# Seconds by which a unit's start may seem too early: the clock is read between two others.
LATE = 0.2


class Note(NamedTuple):
    """A content that gpuprov wrote, as SHA-256, and the change time of the file then."""

    sum: str
    since: float


class Found(NamedTuple):
    """A file that changed after a unit was started."""

    path: str
    changed: float
    # Its content's, empty if it has none.
    sum: str


def parse_notes(text: str) -> dict[str, Note]:
    """Return the notes by path; none of a file that is damaged, so that change times alone count."""
    try:
        return {path: Note(str(row["sum"]), float(row["since"])) for path, row in json.loads(text or "{}").items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def select_newer(changed: Iterable[Found], started: float, notes: Mapping[str, Note]) -> list[str]:
    """Return the files whose content is newer than this start."""
    return [
        file.path
        for file in changed
        if file.changed > started
        and not ((note := notes.get(file.path)) and note.sum == file.sum and note.since <= started)
    ]


def is_read(path: str, reads: Iterable[str]) -> bool:
    """Return whether a path is one of these files, or in one of these folders."""
    return any(path == place or path.startswith(f"{place}/") for place in reads)


def list_newer(paths: Iterable[str], started: float, running: Iterable[str] = ()) -> list[str]:
    """Return the files of this host, and those in these folders, whose content is newer than this start. running: the
    programs of the unit's processes."""
    newer = [path for path in _walk(paths) if os.lstat(path).st_ctime > started and path not in running]
    notes = parse_notes(files.read(NOTES)) if newer else {}
    return select_newer([Found(path, os.lstat(path).st_ctime, _compute_digest(path)) for path in newer], started, notes)


def find_program(pid: int) -> str:
    """Return the path of a process's program; one that was replaced since has another: `PATH (deleted)`."""
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/exe")
    return ""


def note_written(paths: Iterable[str]) -> None:
    """Note what was written just now, on a host that has a receipt, beside it."""
    if not os.path.isdir(os.path.dirname(NOTES)):
        return
    before = parse_notes(files.read(NOTES))
    notes = {path: known for path, known in before.items() if os.path.lexists(path)}
    notes |= {path: Note(_compute_digest(path), os.lstat(path).st_ctime) for path in paths if os.path.lexists(path)}
    if notes != before:
        files.write(NOTES, json.dumps({path: row._asdict() for path, row in sorted(notes.items())}, indent=0) + "\n")


def _walk(paths: Iterable[str]) -> Iterator[str]:
    """Yield these paths, what links among them lead to, and what is in folders; each once, and only what is there."""
    reached: dict[str, None] = {}
    for path in paths:
        reached.update(dict.fromkeys((path, os.path.realpath(path))))
        for folder, folders, names in os.walk(path):
            reached.update(dict.fromkeys(os.path.join(folder, name) for name in (*folders, *names)))
    return filter(os.path.lexists, reached)


def _compute_digest(path: str) -> str:
    """Return the SHA-256 of a file; "" for others."""
    return files.compute_digest(path) if os.path.isfile(path) and not os.path.islink(path) else ""
