"""Functions that these programs share: their configuration, running commands, and one-line error messages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from typing import Any, Callable, Mapping, Sequence

SEARCH = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"


class Refused(Exception):
    """A message for the operator, in one line."""


def parse_seconds(words: Sequence[str]) -> int:
    """Return how long a program may wait, in seconds."""
    return int(words[0]) if words else 0


def main(
    name: str,
    actions: Mapping[str, Callable[[Any], None]],
    about: str = "[SECONDS]",
    takes: Callable[[Sequence[str]], Any] = parse_seconds,
) -> None:
    """Do the action of the first argument, with the other arguments. Ends with status 1 and one line if that is
    impossible."""
    try:
        try:
            act, given = actions[sys.argv[1]], takes(sys.argv[2:])
        except (LookupError, ValueError):
            raise Refused(f"usage: {name} {'|'.join(actions)} {about}".strip()) from None
        act(given)
    except (Refused, OSError) as problem:
        sys.exit(f"{name}: {problem}")


def read_rows(path: str, *kinds: str) -> list[list[str]]:
    """Return the words of each line of a configuration that begins with one of these; if none is given, of all but
    comments."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = [line.split() for line in file]
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror}") from error
    return [row for row in lines if row and (row[0] in kinds if kinds else row[0][0] != "#")]


def run(*argv: str, errors: int = subprocess.STDOUT) -> subprocess.CompletedProcess[str]:
    """Run a command, also from /sbin; its output is in English, with errors included."""
    # A program in Python, as mlnx_qos is, must not find these modules.
    env = {**{key: value for key, value in os.environ.items() if key != "PYTHONPATH"}, "PATH": SEARCH, "LC_ALL": "C"}
    try:
        return subprocess.run(
            argv,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            check=False,
            encoding="utf-8",
            errors="replace",
        )
    except OSError as error:
        return subprocess.CompletedProcess(argv, 127, f"{argv[0]}: {error.strerror}")


def have(program: str) -> bool:
    return shutil.which(program, path=SEARCH) is not None


def run_for_complaint(*argv: str) -> str:
    """Return the last line of the output of a command that fails; "" if it does not fail."""
    done = run(*argv)
    return take_last_line(done.stdout) or f"{argv[0]} ended with {done.returncode}" if done.returncode else ""


def read(reader: str) -> str:
    """Return the output of a script that reads the host's state."""
    done = run("sh", "-c", reader, errors=subprocess.PIPE)
    if done.returncode:
        raise Refused(f"the host cannot be read: {take_last_line(done.stderr) or f'status {done.returncode}'}")
    return done.stdout


def take_last_line(output: str) -> str:
    return (output.strip().splitlines() or [""])[-1]


def write(path: str, value: str) -> str:
    """Write a kernel file; return the error, or ""."""
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"{value}\n")
    except OSError as error:
        return error.strerror or str(error)
    return ""


def is_contained() -> bool:
    """Return whether this is a container, whose modules belong to the machine."""
    return run("systemd-detect-virt", "--container", "--quiet").returncode == 0


def tell(line: str) -> None:
    """Print a line at once: a unit that takes too long is killed."""
    print(line, flush=True)


def wait(seconds: int, done: Callable[[], bool]) -> int:
    """Wait until it is done, or for so many seconds, including the time that `done` takes; return the seconds that are
    left."""
    end = time.monotonic() + seconds
    while not done() and seconds > 0:
        time.sleep(1)
        seconds = min(seconds - 1, round(end - time.monotonic()))
    return max(seconds, 0)


def group_cells(text: str) -> dict[str, list[list[str]]]:
    """Group lines `KIND|CELL|CELL...` of a reader by their kind."""
    by_kind: dict[str, list[list[str]]] = {}
    for line in text.splitlines():
        kind, *rest = line.split("|")
        if rest:
            by_kind.setdefault(kind, []).append(rest)
    return by_kind
