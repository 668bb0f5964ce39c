"""What digests take of what a role reads, kept from run to run: following it parses half of gpuprov, which takes longer than all
else that is done for a host on which nothing is to be done. It goes by every file that could be followed: one that was written
since has another time of change, whatever its time of modification says.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import msgspec

import gpuprov
from gpuprov import assets, keep
from gpuprov.capabilities import BY_NAME
from gpuprov.render.carried import carried
from gpuprov.render.reach import of_role

ROOM = "roles"


class Reached(msgspec.Struct, frozen=True):
    """`text`: a digest of the texts that a role reads; `words`: every word in them; `tables`: the catalogue's that they name."""

    text: str
    words: frozenset[str]
    tables: tuple[str, ...]


_known: dict[str, Reached] = {}


def of_roles(names: Iterable[str]) -> dict[str, Reached]:
    """By role."""
    asked = list(names)
    if any(name not in _known for name in asked):
        file = f"{files_as_they_are()}.msgpack"
        body = keep.read(ROOM, file)
        try:
            kept = msgspec.msgpack.decode(body, type=dict[str, Reached]) if body else {}
        except msgspec.MsgspecError:
            kept = {}
        fresh = {role: _reached(role) for role in asked if role not in kept}
        _known.update(kept | fresh)
        if fresh:
            keep.write(ROOM, file, msgspec.msgpack.encode(kept | fresh))
    return {name: _known[name] for name in asked}


def hash_of(value: object) -> str:
    """20 hexadecimal digits."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:20]


def _reached(name: str) -> Reached:
    reach = of_role(name)
    return Reached(hash_of(reach.texts), reach.words, reach.tables)


@cache
def files_as_they_are() -> str:
    digest = hashlib.sha256(sys.version.encode())
    for file in _files():
        status = file.stat()
        marks = (file, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        digest.update("\0".join(map(str, marks)).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()[:32]


def _files() -> Iterator[Path]:
    folders = [assets.root() / name for name in ("roles", "playbooks", "plugins")]
    for folder in (*folders, Path(gpuprov.__file__).parent):
        yield from _below(folder)
    for name in BY_NAME:
        yield from carried(name).values()


def _below(folder: Path) -> Iterator[Path]:
    for place, inner, names in os.walk(folder):
        inner[:] = sorted(name for name in inner if name != "__pycache__")
        yield from (file for name in sorted(names) if (file := Path(place) / name).is_file())
