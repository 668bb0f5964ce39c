"""Files of inventories: opened only where they are files, and only up to a size."""

import errno
import os
import re
import stat

from gpuprov.core.safe_parse.limits import FILE, HOST_TEXT, LINE, Unreadable, make_size_error


class NotOwn(Unreadable):
    """A file that another user may have written."""


ROOT = 0
LOOP = "a loop of symbolic links"
_SPECIAL = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
KERNEL = "a file of the running kernel"
# A read of some of them waits for ever, and takes away what it returns: /proc/kmsg.
_KERNEL = re.compile("/(?:proc|sys)(?:/|\\Z)")


def explain_refusal(path: str) -> str:
    """Return the reason why a path must not be opened as an inventory's file: what it is instead of a file or folder;
    "" if it may be opened."""
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        return LOOP if error.errno == errno.ELOOP else ""
    special = next((name for is_one, name in _SPECIAL if is_one(mode)), "")
    return special or (KERNEL if _KERNEL.match(os.path.realpath(path)) else "")


def is_planted(path: str) -> bool:
    """Return whether another user of this machine may have put this file into a place that is searched by default, such
    as /tmp.

    Files of root, of the user, and under sudo of the invoking user, count as intended.
    """
    trusted = (str(ROOT), str(os.geteuid()), os.environ.get("SUDO_UID"))
    try:
        if not os.stat(os.path.dirname(path)).st_mode & stat.S_IWOTH:
            return False
        return str(os.lstat(path).st_uid) not in trusted
    except OSError:
        return False


def judge_file(path: str, largest: int = FILE) -> None:
    """Raise Unreadable for what is not a file, or too large; what cannot be looked at is left to who opens it."""
    if what := explain_refusal(path):
        raise Unreadable(f"this is {what}", "a file")
    try:
        size = os.stat(path).st_size
    except OSError:
        return
    if size > largest:
        raise make_size_error(largest)


def judge_lines(data: bytes) -> None:
    """Raise Unreadable for a line that no person wrote: readers of single lines take the square of its length, or
    more."""
    for count, line in enumerate(data.split(b"\n"), start=1):
        if len(line) > LINE:
            raise Unreadable("a line that is too long", f"{LINE} bytes", count, 1)


def read_contents(path: str, largest: int = FILE) -> bytes:
    """The bytes of a regular file. Raises Unreadable for what is none (nothing is waited for) or is too large, OSError
    as open."""
    return read_bytes(path, largest, private=False)


def read_own_contents(path: str, largest: int = FILE) -> bytes:
    """The same of a file that says what is run on hosts. Raises NotOwn where others may write it."""
    return read_bytes(path, largest, private=True)


def read_named(path: str, largest: int = HOST_TEXT) -> bytes:
    """The bytes of a file that a spec names, as a key. Raises OSError, whose `strerror` also says what is not a file,
    or too large."""
    try:
        return read_contents(path, largest)
    except Unreadable as error:
        raise OSError(errno.EINVAL, str(error), path) from error


def read_beginning(path: str, length: int) -> bytes:
    """The first bytes of a file, however large it is. Raises OSError as open."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        return file.read(length)


def read_bytes(path: str, largest: int, *, private: bool) -> bytes:
    if what := explain_refusal(path):
        raise Unreadable(f"this is {what}", "a file")
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode) and not stat.S_ISDIR(about.st_mode):
            raise Unreadable("this is not a file", "a file")
        if private and (about.st_uid not in (0, os.geteuid()) or about.st_mode & 0o022):
            raise NotOwn("it belongs to another user, or others may write it")
        data = file.read(largest + 1)
    if len(data) > largest:
        raise make_size_error(largest)
    return data
