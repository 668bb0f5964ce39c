"""The checkpoints on a host, the target of an unfinished rollback, and the state of an interrupted apply."""

from typing import Any

import msgspec

from gpuprov.core.safe_parse import Unreadable, parse_typed_json
from gpuprov.facts.probes.base import Output, Probe, ProbeFailed
from gpuprov.host_code.checkpoints import FOLDER as _FOLDER


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a host when verify passed."""

    run: str
    at: str
    gpuprov_version: str = ""
    # The applied spec, with the exact versions that resulted.
    spec: dict[str, Any]
    # By capability, of the applied spec and of `spec`.
    digests: tuple[dict[str, str], ...] = ()
    # By name, at exact versions.
    packages: dict[str, str] = {}
    # Package files that the host keeps.
    files: dict[str, str] = {}


class Checkpoints(msgspec.Struct, frozen=True):
    """All checkpoints, the newest last."""

    all: tuple[Checkpoint, ...] = ()
    # The checkpoint at the last passed verify, at `last_at`; empty: unknown time.
    last: Checkpoint | None = None
    # The target of an unfinished rollback.
    target: str = ""
    # Capabilities that an interrupted apply has begun.
    half_way: tuple[str, ...] = ()
    # Number of unreadable checkpoints.
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
    checkpoints: list[Checkpoint] = []
    target, last, damaged = "", _Run(""), 0
    half: tuple[str, ...] = ()
    for line in output.text.splitlines():
        kind, _, text = line.partition(" ")
        try:
            if kind == "checkpoint":
                checkpoints.append(parse_typed_json(text, Checkpoint))
            elif kind == "last":
                last = parse_typed_json(text, _Run)
            elif kind == "target":
                target = parse_typed_json(text, _Run).run
            elif kind == "mark":
                half = parse_typed_json(text, _Mark).capabilities
        except Unreadable:
            damaged += kind == "checkpoint"
    checkpoints.sort(key=lambda checkpoint: checkpoint.at)
    return Checkpoints(
        tuple(checkpoints),
        next(
            (checkpoint for checkpoint in checkpoints if checkpoint.run == last.run),
            checkpoints[-1] if checkpoints else None,
        ),
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
    own=True,
)
