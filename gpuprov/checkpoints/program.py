"""gpuprov/onhost/checkpoints.py, run on many hosts at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from gpuprov import reading
from gpuprov.errors import GpuprovError, UnreachableError
from gpuprov.gather.children import Job, run_all
from gpuprov.gather.pace import Pace
from gpuprov.gather.script import compose, split
from gpuprov.gather.transport import Answer, job
from gpuprov.onhost import checkpoints, files
from gpuprov.plan.host_lock import with_python
from gpuprov.probe.base import Output, Probe
from gpuprov.spec.model import RawHost

LIMIT = 600.0
"""Seconds for one host: packages that apt has not kept are downloaded once more."""


@cache
def program() -> str:
    """The program as one text, as it goes to a host: what it imports from beside it stands in it."""
    text, beside = (Path(str(one.__file__)).read_text(encoding="utf-8") for one in (checkpoints, files))
    return text.replace("from .files import write\n", beside.partition("from __future__ import annotations\n")[2])


class Told(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the program answers; a host may say anything else."""

    problem: str | None = None
    kept: str = ""
    left_out: tuple[str, ...] = ()
    offered: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def on_hosts(
    asked: Mapping[str, tuple[RawHost, Mapping[str, Any]]], pace: Pace | None = None
) -> dict[str, dict[str, Any]]:
    """By host, what the program answered; `problem` in it says why it did not do what it was asked for."""
    answers: dict[str, dict[str, Any]] = {}
    jobs: list[Job] = []
    for name, (raw, request) in asked.items():
        answers[name] = {"problem": "not tried"}
        script = compose((Probe("checkpoint", with_python(program(), request), _text),), limit=int(LIMIT))
        try:
            jobs.append(job(raw, script, LIMIT, _noted(answers, name)))
        except GpuprovError as error:
            answers[name] = {"problem": error.message}
    run_all(jobs, (pace or Pace(0)).forks or 64)
    return answers


def _text(output: Output) -> str:
    return output.text


def _noted(answers: dict[str, dict[str, Any]], host: str) -> Callable[[Answer], None]:
    def done(answer: Answer) -> None:
        if isinstance(answer, UnreachableError):
            answers[host] = {"problem": getattr(answer, "reason", answer.message)}
            return
        output = (split(answer) or {}).get("checkpoint", Output(""))
        try:
            answers[host] = msgspec.to_builtins(reading.typed_json(output.text, Told))
        except reading.Unreadable:
            said = " ".join((output.error or output.text).split())[-300:]
            answers[host] = {"problem": said or f"exit status {output.status}"}

    return done
