"""gpuprov/onhost/checkpoints.py, run on many hosts at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gpuprov.gather.pace import Pace
from gpuprov.onhost import checkpoints
from gpuprov.plan.host_code import run_on_hosts
from gpuprov.spec.model import RawHost

LIMIT = 600.0
"""Seconds for one host: packages that apt has not kept are downloaded once more."""


class Told(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the program answers; a host may say anything else."""

    problem: str | None = None
    kept: str = ""
    left_out: tuple[str, ...] = ()
    offered: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    unasked: str = ""
    locked: dict[str, Any] | None = None


def on_hosts(
    asked: Mapping[str, tuple[RawHost, Mapping[str, Any]]], pace: Pace | None = None
) -> dict[str, dict[str, Any]]:
    """By host, what the program answered; `problem` in it says why it did not do what it was asked for."""
    found = run_on_hosts(checkpoints, asked, Told, limit=LIMIT, pace=pace)
    return {name: _plain(one.answer) if one.answer else {"problem": one.problem} for name, one in found.items()}


def _plain(told: Told) -> dict[str, Any]:
    return {key: one if key == "locked" else _in_one_line(one) for key, one in msgspec.to_builtins(told).items()}


def _in_one_line(said: Any) -> Any:
    """Texts are told in a line of the host's; the lock's is compared with what it was."""
    return [_in_one_line(one) for one in said] if isinstance(said, list | tuple) else " ".join(said.split())
