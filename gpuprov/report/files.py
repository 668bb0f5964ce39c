"""Files that are there whole or not at all, and hold nothing hidden."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from errno import EACCES
from pathlib import Path

from gpuprov.errors import GpuprovError
from gpuprov.shown import cleaned


def write_atomic(path: str | Path, text: str, mode: int | None = None) -> None:
    """Replace the file in one step. A device or pipe is written to; a link keeps being a link. `mode`: 0666 less umask."""
    target, text = Path(path), cleaned(text)
    try:
        if target.exists() and not target.is_file():
            target.write_text(text, encoding="utf-8")
            return
        target = target.resolve()
        _replace(target, text.encode(), _mode(target) if mode is None else mode)
    except OSError as error:
        raise _refused(path, error) from error


def check_writable(*paths: str | Path | None) -> None:
    """Raise GpuprovError if `write_atomic` could not write one of the files. Nothing is left behind."""
    for path in paths:
        if path is None:
            continue
        try:
            target = Path(path)
            if target.exists() and not target.is_file():
                if not os.access(target, os.W_OK):
                    raise PermissionError(EACCES, os.strerror(EACCES))
                continue
            target = target.resolve()
            with tempfile.NamedTemporaryFile(prefix=f".{target.name}.", dir=target.parent):
                pass
        except OSError as error:
            raise _refused(path, error) from error


def _refused(path: str | Path, error: OSError) -> GpuprovError:
    return GpuprovError(f"{path} cannot be written: {error.strerror}", "name a file in a folder you may write to")


def _mode(target: Path) -> int:
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0o077)
    os.umask(mask)
    return 0o666 & ~mask


def _replace(target: Path, data: bytes, mode: int) -> None:
    descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        os.replace(temporary, target)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
