"""What gpuprov left on a host: checkpoints, the target of an unfinished rollback, the state of an interrupted apply,
and repairs."""

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import msgspec

from gpuprov.core.safe_parse import Unreadable, parse_typed_json
from gpuprov.facts.probes.base import Output, Probe, ProbeFailed
from gpuprov.host_code.checkpoints import FOLDER as _FOLDER
from gpuprov.host_code.repairs import RECORD


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


class Repair(msgspec.Struct, frozen=True, kw_only=True):
    """An act. `at` in Unix time."""

    at: Annotated[float, msgspec.Meta(ge=0, le=100_000_000_000)]
    run: str
    # reset, reboot, repaired or given up.
    act: str
    # PCI addresses, empty for all.
    gpus: tuple[str, ...] = ()
    # The checks of health that asked for it.
    checks: tuple[str, ...] = ()
    # Why it was not done.
    problem: str = ""

    def is_made_by(self, now: float) -> bool:
        """Return whether its time is not later than the host's own, in whole seconds. A later one is of a clock that
        was ahead: what came after it cannot be told from what came before."""
        return int(self.at) <= now


def list_repairs(lines: Iterable[str]) -> Iterator[Repair]:
    """Yield the acts; a damaged line is left out, since it proves nothing."""
    for line in lines:
        try:
            yield parse_typed_json(line, Repair)
        except Unreadable:
            continue


def parse_repairs(output: Output) -> tuple[Repair, ...]:
    return tuple(list_repairs(output.text.splitlines()))


# Shell that prints the record.
PRINTED = f"tail -n 200 {RECORD} 2>/dev/null"
REPAIRS = Probe("repairs", f"{PRINTED}; true", parse_repairs, f"cat {RECORD}", blank=".", own=True)
