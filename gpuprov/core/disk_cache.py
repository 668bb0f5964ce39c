"""Files kept between runs, for speed only: checksummed, of one user (mode 0600), complete or absent, ignored if
damaged."""

import hashlib
import os
import stat
from pathlib import Path

# Maximum number of files per room, where the room names no other; the oldest are deleted.
KEPT = 32


def folder(room: str) -> Path:
    """Return the folder with the files of a room: $XDG_CACHE_HOME/gpuprov/ROOM, else ~/.cache/gpuprov/ROOM."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    home = os.path.expanduser("~")
    usable = home if os.path.isdir(home) and os.path.isabs(home) else os.devnull  # below which nothing can be made
    return (Path(base) if os.path.isabs(base) else Path(usable) / ".cache") / "gpuprov" / room


def read(room: str, name: str) -> bytes | None:
    """Return the file kept under the name, if it is sound and this user's own."""
    try:
        handle = os.open(folder(room) / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(file.fileno())
        if status.st_uid != os.geteuid() or not stat.S_ISREG(status.st_mode) or status.st_mode & 0o077:
            return None
        data = file.read()
    checksum, body = data[:32], data[32:]
    return body if hashlib.sha256(body).digest() == checksum else None


def write(room: str, name: str, body: bytes, most: int | None = None) -> None:
    """Keep a file, at most `most` (by default KEPT) in its room; does nothing if the folder cannot be written."""
    place = folder(room)
    temporary = place / f".{name}.{os.getpid()}"
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary.unlink(missing_ok=True)
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(body).digest() + body)
            os.replace(temporary, place / name)
        except OSError:
            temporary.unlink(missing_ok=True)
            return
        files = [path for path in place.iterdir() if not path.name.startswith(".")]
        for old in sorted(files, key=lambda path: path.stat().st_mtime, reverse=True)[KEPT if most is None else most :]:
            old.unlink(missing_ok=True)
    except OSError:
        return
