"""The client programs of schedulers, run as argument lists: what they said, within limits of time and size."""

from __future__ import annotations

import shutil
from collections.abc import Mapping

from gpuprov.errors import GpuprovError
from gpuprov.gather.children import Child, Ended, Job, run_all

LIMIT = 60.0
"""Seconds that one question may take; slurmctld of a busy cluster answers within some."""
SAID = 300
"""Characters of a program's complaint that a message has."""
ENGLISH = {"LC_ALL": "C.UTF-8"}


class Unanswered(Exception):
    """The scheduler could not be asked, or what it answered cannot be read: ask again."""


def needs(program: str) -> None:
    """Raise GpuprovError where the client program is not installed."""
    if shutil.which(program) is None:
        raise GpuprovError(f"{program} is not installed here", f"run this where {program} reaches the scheduler")


def ask(
    argv: list[str], *, stdin: bytes = b"", limit: float = LIMIT, environment: Mapping[str, str | None] | None = None
) -> Ended:
    """What a client program said, and its exit status. Raises Unanswered; GpuprovError where it is not installed."""
    needs(argv[0])
    ends: list[Ended] = []
    given = ENGLISH if environment is None else environment
    run_all([Job(lambda: Child(argv, given), stdin, lambda _: False, limit, ends.append)], workers=1)
    ended = ends[0]
    if ended.reason == "timeout":
        raise Unanswered(f"{argv[0]} did not end within {limit:g} s")
    if ended.reason:
        raise Unanswered(f"{argv[0]}: {ended.reason}")
    if ended.status is None:
        raise Unanswered(f"{argv[0]} could not be started: {said(ended)}")
    return ended


def said(ended: Ended) -> str:
    """A program's complaint on one line: what it wrote to standard error, or else to standard output."""
    text = (ended.error.strip() or ended.out.strip()).decode(errors="replace")
    line = " ".join(text.split())
    return line if len(line) <= SAID else f"{line[:SAID]}..."
