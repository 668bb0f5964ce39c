"""Files of the puller: read only if root alone can write them, written as a whole."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from typing import Any

from .refused import Refused


def read_contents(path: str, largest: int, own: bool = False) -> bytes:
    """Return the bytes of a regular file. `own`: only if nobody else could have written it. Raises OSError, or
    Refused."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise Refused(f"{path} is not a file", "name a file")
        if own and (about.st_uid not in (0, os.geteuid()) or about.st_mode & 0o022):
            raise Refused(
                f"{path} belongs to another user, or others may write it", f"chown root {path}; chmod go-w {path}"
            )
        data = file.read(largest + 1)
    if len(data) > largest:
        raise Refused(f"{path} has more than {largest} bytes", "name another file")
    return data


def parse_mapping(data: bytes, what: str, fix: str) -> dict[str, Any]:
    """Parse a JSON object."""
    try:
        content = json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise Refused(f"{what} is not JSON: {str(error)[:200]}", fix) from None
    if not isinstance(content, dict):
        raise Refused(f"{what} is not a JSON object", fix)
    return content


def write_whole(path: str, data: bytes, mode: int = 0o600) -> None:
    """Write a file in one step, flushed to disk. Leaves nothing behind on failure."""
    fresh = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(fresh)
    try:
        with os.fdopen(
            os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode), "wb"
        ) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(fresh)
        raise
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
