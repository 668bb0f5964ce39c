"""The client programs of schedulers, run as argument lists, within limits of time and size."""

import shutil
from collections.abc import Mapping

from gpuprov.core.errors import GpuprovError
from gpuprov.facts.collect.children import Child, Ended, Job, run_all

# Seconds for one question; slurmctld of a busy cluster answers within some.
LIMIT = 60.0
# Characters of a program's complaint in a message.
SAID = 300
ENGLISH = {"LC_ALL": "C.UTF-8"}


class Unanswered(Exception):
    """The scheduler could not be asked, or its answer cannot be read: ask again."""


def require_program(program: str) -> None:
    """Raise GpuprovError if the client program is not installed."""
    if shutil.which(program) is None:
        raise GpuprovError(f"{program} is not installed here", f"run this where {program} reaches the scheduler")


def ask(
    argv: list[str], *, stdin: bytes = b"", limit: float = LIMIT, environment: Mapping[str, str | None] | None = None
) -> Ended:
    """Run a client program; return its output and exit status. Raises Unanswered; GpuprovError if it is not
    installed."""
    require_program(argv[0])
    ends: list[Ended] = []
    given = ENGLISH if environment is None else environment
    run_all([Job(lambda: Child(argv, given), stdin, lambda _: False, limit, ends.append)], workers=1)
    ended = ends[0]
    if ended.reason == "timeout":
        raise Unanswered(f"{argv[0]} did not end within {limit:g} s")
    if ended.reason:
        raise Unanswered(f"{argv[0]}: {ended.reason}")
    if ended.status is None:
        raise Unanswered(f"{argv[0]} could not be started: {format_complaint(ended)}")
    return ended


def format_complaint(ended: Ended) -> str:
    """Format a program's complaint on one line: its standard error, or else its standard output."""
    text = (ended.error.strip() or ended.out.strip()).decode(errors="replace")
    line = " ".join(text.split())
    return line if len(line) <= SAID else f"{line[:SAID]}..."
