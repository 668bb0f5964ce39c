"""gpuprov/host_code/checkpoints.py, run on many hosts at a time."""

from collections.abc import Mapping
from typing import Any

import msgspec

from gpuprov.facts.collect.pace import Pace
from gpuprov.host_code import checkpoints
from gpuprov.plan.host_code import run_on_hosts
from gpuprov.spec.model import RawHost

LIMIT = 600.0
"""Seconds for one host: packages that apt has not kept are downloaded once more."""


class CheckpointsAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer of the program; one of any other form is a problem of the host."""

    problem: str | None = None
    kept: str = ""
    left_out: tuple[str, ...] = ()
    offered: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    unasked: str = ""
    locked: dict[str, Any] | None = None


def on_hosts(
    requests: Mapping[str, tuple[RawHost, Mapping[str, Any]]], pace: Pace | None = None
) -> dict[str, dict[str, Any]]:
    """Return the answers by host; `problem` in one is the reason why the host did not do it."""
    results = run_on_hosts(checkpoints, requests, CheckpointsAnswer, limit=LIMIT, pace=pace)
    return {
        name: _plain(result.answer) if result.answer else {"problem": result.problem}
        for name, result in results.items()
    }


def _plain(answer: CheckpointsAnswer) -> dict[str, Any]:
    return {
        key: value if key == "locked" else _in_one_line(value) for key, value in msgspec.to_builtins(answer).items()
    }


def _in_one_line(value: Any) -> Any:
    """Put each text in one line. That of a lock stays as it is: it is compared with an earlier one."""
    return [_in_one_line(text) for text in value] if isinstance(value, list | tuple) else " ".join(value.split())
