"""Folders for a while: in one that every program takes, whatever TMPDIR is called, and for sockets in one with a short name."""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

SOCKETS = "gpuprov-ssh-"
LONGEST = 107 - len("/0123456789") - len(".0123456789abcdef")
"""Bytes of the name of a folder for ssh's sockets: unix(7) has 108 with the NUL, Ansible names a socket with ten characters, and ssh
makes it under a name that is 17 longer (mux.c of https://github.com/openssh/openssh-portable)."""
_PLAIN = re.compile(r"/[\w./+@-]*")
"""Ansible takes `{{`, a blank, a comma, `:`, `$` and `~` in a path for something else, and ssh a `%`."""


def settle() -> None:
    """Have this process and its children use another temporary folder where the name of theirs means something to a program."""
    with suppress(FileNotFoundError):
        if is_plain(tempfile.gettempdir()):
            return
    for place in usual():
        if is_plain(place) and os.path.isdir(place) and os.access(place, os.W_OK | os.X_OK):
            os.environ["TMPDIR"] = tempfile.tempdir = place
            return


def usual() -> list[str]:
    """The folders for temporary files that Python knows of, the user's own ones first; the current folder is none."""
    known: list[str] = tempfile._candidate_tempdir_list()  # type: ignore[attr-defined]
    return known[:-1]


def is_plain(path: str) -> bool:
    """Whether the name of a folder is itself to every program."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return _PLAIN.fullmatch(path) is not None


def folder(prefix: str) -> Path:
    """A new folder for this user alone. Raises OSError, which says what to do."""
    try:
        return Path(tempfile.mkdtemp(prefix=prefix))
    except OSError as error:  # FileNotFoundError: nothing can be written in any folder that may be
        where = usual()[0]
        why = f"nothing can be written in {where}" if error.filename is None else f"{where}: {error.strerror}"
        raise OSError(error.errno, f"no temporary folder: {why}") from error


def make_sockets(folder: Path) -> None:
    """Make this folder for ssh's sockets, or, where its name is too long for them, a link to one with a short name. Raises OSError."""
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
        f"no folder for ssh's sockets: the name of {folder} is too long, and none of {', '.join(usual())} can be written",
    )


def remove_sockets(folder: Path) -> None:
    """Remove the folder that it links to, if it does."""
    with suppress(OSError):
        aim = Path(os.readlink(folder))
        if aim.name.startswith(SOCKETS) and aim.lstat().st_uid == os.geteuid():
            shutil.rmtree(aim, ignore_errors=True)
