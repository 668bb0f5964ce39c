"""gpuprov/host_code/checkpoints.py, run on many hosts at a time."""

from collections.abc import Mapping
from typing import Any

import msgspec

from gpuprov.facts.collect.rounds import Pace
from gpuprov.host_code import checkpoints
from gpuprov.host_code.kept_files import Request
from gpuprov.plan.host_code import run_on_hosts
from gpuprov.spec.model import RawHost

# Seconds for one host: packages that apt has not kept are downloaded once more.
LIMIT = 600.0


class CheckpointsAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer of the program; one of any other form is a problem of the host."""

    problem: str | None = None
    kept: str = ""
    left_out: tuple[str, ...] = ()
    offered: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    unasked: str = ""
    locked: dict[str, Any] | None = None


def on_hosts(requests: Mapping[str, tuple[RawHost, Request]], pace: Pace | None = None) -> dict[str, CheckpointsAnswer]:
    """Return the answers by host; `problem` in one is the reason why the host did not do it."""
    results = run_on_hosts(checkpoints, requests, CheckpointsAnswer, limit=LIMIT, pace=pace)
    return {
        name: _put_in_one_line(result.answer) if result.answer else CheckpointsAnswer(problem=result.problem)
        for name, result in results.items()
    }


def _put_in_one_line(answer: CheckpointsAnswer) -> CheckpointsAnswer:
    """Put each text in one line. That of a lock stays as it is: it is compared with an earlier one."""
    return msgspec.structs.replace(
        answer,
        problem=None if answer.problem is None else " ".join(answer.problem.split()),
        kept=" ".join(answer.kept.split()),
        unasked=" ".join(answer.unasked.split()),
        left_out=tuple(" ".join(text.split()) for text in answer.left_out),
        offered=tuple(" ".join(text.split()) for text in answer.offered),
        missing=tuple(" ".join(text.split()) for text in answer.missing),
    )
