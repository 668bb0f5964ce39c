"""Programs of the host, run without a terminal and in one language."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from typing import Mapping, Sequence


@dataclass(frozen=True)
class Ran:
    """The exit status and output of a program."""

    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """The output, by line."""
        return self.out.splitlines()

    @property
    def message(self) -> str:
        """The whole output, in one line."""
        return " ".join((self.err + " " + self.out).split())


def run(argv: Sequence[str], more: Mapping[str, str] | None = None, stdin: str = "", folder: str | None = None) -> Ran:
    """Run a program, with `more` in its environment, in this folder. A missing program ends with status 127."""
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "LANGUAGE": "", **(more or {})}
    try:
        done = subprocess.run(
            list(argv),
            input=stdin,
            env=environment,
            cwd=folder,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
    except OSError as error:
        return Ran(127, "", f"{argv[0]}: {error.strerror}")
    return Ran(done.returncode, done.stdout, done.stderr)


def shorten_end(text: str, most: int) -> str:
    """Return the text in one line of at most so many characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= most else f"{flat[: most - 3]}..."


def shorten_middle(text: str, most: int) -> str:
    """Return the same, but cut out of the middle if it is too long: the reason may be last, after the obstacles."""
    flat, half = " ".join(text.split()), (most - 5) // 2
    return flat if len(flat) <= most else f"{flat[:half]} ... {flat[-half:]}"
