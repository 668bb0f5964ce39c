"""Files that are written completely or not at all, without hidden content."""

import os
import tempfile
from contextlib import suppress
from errno import EACCES, ELOOP, EPERM
from pathlib import Path
from typing import NamedTuple

from gpuprov.core.errors import GpuprovError
from gpuprov.core.safe_parse import is_planted
from gpuprov.core.sanitize import cleaned


class ReportFiles(NamedTuple):
    """The requested files; None: not requested."""

    junit: Path | None = None
    html: Path | None = None
    prometheus: Path | None = None


NONE = ReportFiles()


# Maximum number of folders and links in a path, beyond which it counts as a loop.
LONGEST_WAY = 1000


def write_atomic(path: str | Path, text: str, mode: int | None = None) -> None:
    """Replace the file in one step. A device or pipe is written to directly. `mode`: 0666 less umask.

    A link stays a link, and its target is replaced, if that and every link on the path belong to root or this user: a
    link that somebody else put there, say in /tmp, would choose what is overwritten. Somebody else's file could be
    changed afterwards by its owner, and somebody else's pipe would be read by its owner.
    """
    target, text = Path(path), cleaned(text)
    try:
        refuse_foreign_links(target)
        if target.exists() and not target.is_file():
            _refuse_planted(target)
            target.write_text(text, encoding="utf-8")
            return
        target = target.resolve()
        _replace(target, text.encode(), _find_mode(target) if mode is None else mode)
    except OSError as error:
        raise _make_refusal(path, error) from error


def check_writable(*paths: str | Path | None) -> None:
    """Raise GpuprovError if `write_atomic` could not write one of the files. Leaves nothing behind."""
    for path in paths:
        if path is None:
            continue
        try:
            target = Path(path)
            refuse_foreign_links(target)
            if target.exists() and not target.is_file():
                _refuse_planted(target)
                if not os.access(target, os.W_OK):
                    raise PermissionError(EACCES, os.strerror(EACCES))
                continue
            target = target.resolve()
            with tempfile.NamedTemporaryFile(prefix=f".{target.name}.", dir=target.parent):
                pass
        except OSError as error:
            raise _make_refusal(path, error) from error


def refuse_foreign_links(path: Path) -> None:
    """Raise OSError if a link in the path of the file belongs to another user than this one and root."""
    left = [*reversed(Path(os.path.abspath(path)).parts)]
    place = Path(left.pop())
    for _ in range(LONGEST_WAY):
        if not left:
            return
        name = left.pop()
        place = place.parent if name == ".." else place / name
        if not place.is_symlink():
            continue
        if place.lstat().st_uid not in (0, os.geteuid()):
            raise OSError(ELOOP, f"{place} is a link that another user has put there")
        to = Path(os.readlink(place))
        left += reversed(to.parts[1:] if to.is_absolute() else to.parts)
        place = Path("/") if to.is_absolute() else place.parent
    raise OSError(ELOOP, os.strerror(ELOOP))


def _refuse_planted(target: Path) -> None:
    if is_planted(str(target.resolve())):
        raise OSError(EPERM, f"{target} is another user's, and no file")


def _make_refusal(path: str | Path, error: OSError) -> GpuprovError:
    return GpuprovError(f"{path} cannot be written: {error.strerror}", "name a file in a folder you may write to")


def _find_mode(target: Path) -> int:
    if target.exists() and not is_planted(str(target)):
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


def refuse_anothers(place: Path) -> None:
    """Refuse a folder of another user: everybody knows its name in the folder for temporary files, and may have made it
    first."""
    if place.parent.parent == Path(tempfile.gettempdir()):
        for path in (place.parent, place):
            if path.is_symlink() or path.lstat().st_uid != os.geteuid():
                raise PermissionError(EPERM, f"{path} is a link, or another user's")


def state_folder(name: str) -> Path:
    """Return `$XDG_STATE_HOME`/gpuprov/NAME; the specification's default is ~/.local/state. Without a home, a folder
    for temporary files."""
    state = os.environ.get("XDG_STATE_HOME", "")
    home = os.path.expanduser("~")
    if state.startswith("/"):
        return Path(state) / "gpuprov" / name
    if os.path.isdir(home) and os.path.isabs(home):
        return Path(home) / ".local" / "state" / "gpuprov" / name
    return Path(tempfile.gettempdir()) / f"gpuprov-{os.geteuid()}" / name
