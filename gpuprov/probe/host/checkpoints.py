"""The checkpoints that a host keeps, which of them a rollback has begun to go back to, and what an apply left half-way."""

from __future__ import annotations

from typing import Any

import msgspec

from gpuprov.onhost.checkpoints import FOLDER as _FOLDER
from gpuprov.probe.base import Output, Probe, ProbeFailed
from gpuprov.reading import Unreadable, typed_json


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """What a host was when verify called it green. `spec`: what was applied, with the exact versions that came of it. `digests`: by
    capability, of what was applied and of `spec`. `packages`: by name, at exact versions; `files` of them that the host keeps."""

    run: str
    at: str
    gpuprov_version: str = ""
    spec: dict[str, Any]
    digests: tuple[dict[str, str], ...] = ()
    packages: dict[str, str] = {}
    files: dict[str, str] = {}


class Checkpoints(msgspec.Struct, frozen=True):
    """In the order of their times, the newest last. `last`: the one that the host was at when verify was last green, at `last_at`;
    empty: nobody knows when. `target`: the one that a rollback which has not ended goes back to. `half_way`: capabilities that an
    apply which was cut off has begun. `damaged`: how many cannot be read."""

    all: tuple[Checkpoint, ...] = ()
    last: Checkpoint | None = None
    target: str = ""
    half_way: tuple[str, ...] = ()
    damaged: int = 0
    last_at: str = ""


class _Run(msgspec.Struct):
    run: str
    at: str = ""


class _Mark(msgspec.Struct):
    capabilities: tuple[str, ...]


def parse(output: Output) -> Checkpoints:
    if output.status:
        raise ProbeFailed(f"the checkpoints cannot be read: {output.error.strip()[:200] or f'status {output.status}'}")
    found: list[Checkpoint] = []
    target, last, damaged = "", _Run(""), 0
    half: tuple[str, ...] = ()
    for line in output.text.splitlines():
        kind, _, text = line.partition(" ")
        try:
            if kind == "checkpoint":
                found.append(typed_json(text, Checkpoint))
            elif kind == "last":
                last = typed_json(text, _Run)
            elif kind == "target":
                target = typed_json(text, _Run).run
            elif kind == "mark":
                half = typed_json(text, _Mark).capabilities
        except Unreadable:
            damaged += kind == "checkpoint"
    found.sort(key=lambda one: one.at)
    return Checkpoints(
        tuple(found),
        next((one for one in found if one.run == last.run), found[-1] if found else None),
        target,
        half,
        damaged,
        last.at,
    )


CHECKPOINTS = Probe(
    "checkpoints",
    f"""first() {{ [ -f "$2" ] || return 0; line=$(head -n 1 "$2") || exit 1; printf '%s %s\\n' "$1" "$line"; }}
for f in {_FOLDER}/*/checkpoint.json; do first checkpoint "$f"; done
first last {_FOLDER}/last.json
first target {_FOLDER}/target.json
first mark /var/lib/gpuprov/applying.json""",
    parse,
    f"ls {_FOLDER}",
)
