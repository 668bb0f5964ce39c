"""Writes the hosts that a command did not finish to a file for --limit."""

import os
from collections.abc import Collection
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from gpuprov.core import terminal
from gpuprov.core.errors import GpuprovError
from gpuprov.report.files import refuse_anothers, state_folder, write_atomic

# Number of files to keep; older ones are removed.
KEPT = 32


def offer(
    verb: str, again: Collection[str], everyone: int, option: str = "--limit ", to_do: str = "to do again"
) -> Path | None:
    """Write the file and print it as the value of `option` (empty: in place of hosts).

    Returns None if no host is left to do, or if the same command does all of them again."""
    if not again or len(again) == everyone:
        return None
    path = state_folder("retry") / f"{verb}-{datetime.now(UTC):%Y-%m-%dT%H-%M-%SZ}-{os.getpid()}.retry"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        refuse_anothers(path.parent)
        write_atomic(path, "".join(f"{name}\n" for name in again), mode=0o600)
    except (OSError, GpuprovError) as error:
        terminal.warning(f"no retry file: {getattr(error, 'message', '') or error}")
        return None
    _forget(path.parent)
    terminal.progress(f"{len(again)} of {everyone} hosts {to_do}: {option}@{path}")
    return path


def _forget(folder: Path) -> None:
    with suppress(OSError):
        files = sorted(folder.glob("*.retry"), key=lambda file: file.stat().st_mtime, reverse=True)
        for old in files[KEPT:]:
            old.unlink(missing_ok=True)
