"""Files that a roll-out's processes hold open: locks, and the output of a job. Only regular files are opened: a pipe
would block."""

import errno
import fcntl
import os
import stat
from pathlib import Path

from gpuprov.core.errors import GpuprovError


def opened(file: Path, flags: int) -> int:
    """Return a descriptor of a regular file. Raises GpuprovError for any other kind of file, and OSError like open."""
    try:
        handle = os.open(file, flags | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.EISDIR, errno.ELOOP):
            raise _make_error(file) from error
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise _make_error(file)
    os.set_blocking(handle, True)
    return handle


def _make_error(file: Path) -> GpuprovError:
    return GpuprovError(f"{file} is not a regular file", "remove it, and run this again: it is created again")


def is_held(file: Path, how: int = fcntl.LOCK_EX) -> bool:
    """Return whether a process holds this lock. Nobody holds a lock whose file does not exist."""
    try:
        handle = opened(file, os.O_RDWR if how == fcntl.LOCK_EX else os.O_RDONLY)  # NFS wants that
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False
