"""Temporary folders: in a parent that every program accepts, whatever TMPDIR is, and for sockets in one with a short
name."""

import errno
import os
import re
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

SOCKETS = "gpuprov-ssh-"
# Maximum length in bytes of the name of a folder for ssh's sockets: unix(7) has 108 with the NUL, Ansible names a
# socket with ten characters, and ssh creates it under a name that is 17 longer (mux.c of
# https://github.com/openssh/openssh-portable).
LONGEST = 107 - len("/0123456789") - len(".0123456789abcdef")
# Ansible interprets `{{`, a blank, a comma, `:`, `$` and `~` in a path, and ssh a `%`.
_PLAIN = re.compile(r"/[\w./+@-]*")


def settle() -> None:
    """Switch this process and its children to another temporary folder if a program would misread the name of
    theirs."""
    with suppress(FileNotFoundError):
        if is_plain(tempfile.gettempdir()):
            return
    for place in usual():
        if is_plain(place) and os.path.isdir(place) and os.access(place, os.W_OK | os.X_OK):
            os.environ["TMPDIR"] = tempfile.tempdir = place
            return


def usual() -> list[str]:
    """Return the folders for temporary files that Python knows, the user's own first, without the current folder."""
    known: list[str] = tempfile._candidate_tempdir_list()  # type: ignore[attr-defined]
    return known[:-1]


def is_plain(path: str) -> bool:
    """True if every program reads the name of a folder literally."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return _PLAIN.fullmatch(path) is not None


def folder(prefix: str) -> Path:
    """Create a folder for this user alone. Raises OSError, which says what to do."""
    try:
        return Path(tempfile.mkdtemp(prefix=prefix))
    except OSError as error:  # FileNotFoundError: nothing can be written in any folder that may be
        where = usual()[0]
        why = f"nothing can be written in {where}" if error.filename is None else f"{where}: {error.strerror}"
        raise OSError(error.errno, f"no temporary folder: {why}") from error


def make_sockets(folder: Path) -> None:
    """Create this folder for ssh's sockets, or, if its name is too long for them, a link to one with a short name.
    Raises OSError."""
    if len(os.fsencode(folder)) <= LONGEST:
        folder.mkdir(mode=0o700)
        return
    for above in (os.environ.get("XDG_RUNTIME_DIR", ""), *usual()):
        if (
            above.startswith("/")
            and is_plain(above)
            and len(os.fsencode(above)) + len(f"/{SOCKETS}12345678") <= LONGEST
        ):
            with suppress(OSError):
                folder.symlink_to(tempfile.mkdtemp(prefix=SOCKETS, dir=above))
                return
    raise OSError(
        errno.ENAMETOOLONG,
        f"no folder for ssh's sockets: the name of {folder} is too long, and none of {', '.join(usual())} can be "
        "written",
    )


def remove_sockets(folder: Path) -> None:
    """Remove the folder that it links to, if any."""
    with suppress(OSError):
        aim = Path(os.readlink(folder))
        if aim.name.startswith(SOCKETS) and aim.lstat().st_uid == os.geteuid():
            shutil.rmtree(aim, ignore_errors=True)
