"""Archives of installers on this host: unpacked into a separate folder that nothing may lead out of."""

from __future__ import annotations

import os
import posixpath
import tarfile
import zlib

from .failed import Failed

MOST_BYTES = 16 << 30
# Maximum number of entries in an archive; AWS's installer has some hundred entries and about a GiB.
MOST_ENTRIES = 200000

BROKEN: tuple[type[Exception], ...] = (tarfile.TarError, zlib.error, EOFError, OSError, ValueError, RecursionError)
try:
    from lzma import LZMAError
except ImportError:  # a Python that was built without it
    pass
else:
    BROKEN += (LZMAError,)


def unpack(archive: str, into: str) -> None:
    """Unpack a tar, compressed or not, into this folder, with root as the owner. Raises Failed; files unpacked by then
    stay."""
    home, size, count = os.path.realpath(into), 0, 0
    links: list[str] = []
    try:
        with tarfile.open(archive) as packed:
            for entry in packed:
                size, count = size + max(entry.size, 0), count + 1
                if size > MOST_BYTES or count > MOST_ENTRIES:
                    raise Failed(f"{archive} holds more than {MOST_BYTES >> 30} GiB or {int(MOST_ENTRIES)} entries")
                _judge(archive, entry, home)
                entry.uid = entry.gid = 0
                entry.uname = entry.gname = ""
                entry.mode &= 0o755
                packed.extract(entry, home)
                links += [entry.name] if entry.issym() else []
        for name in links:  # where a link leads is known when all others are there
            if os.path.commonpath([os.path.realpath(os.path.join(home, name)), home]) != home:
                raise Failed(f"{archive} holds a link out of it: {name[:80]}")
    except tarfile.ReadError as error:  # of each compression in a line of its own, what it is not
        raise Failed(f"{archive} cannot be unpacked: it is not a tar archive, or cut off") from error
    except BROKEN as error:
        raise Failed(f"{archive} cannot be unpacked: {error}") from error


def _judge(archive: str, entry: tarfile.TarInfo, home: str) -> None:
    name = entry.name
    kinds = entry.isfile() or entry.isdir() or entry.issym() or (entry.islnk() and is_inside(entry.linkname))
    empty = not entry.isdir() and posixpath.normpath(name) == "."
    if not is_inside(name) or not kinds or empty or (entry.issym() and not entry.linkname):
        raise Failed(f"{archive} holds {name[:80]}, which is not unpacked")
    aim = posixpath.normpath(posixpath.join(posixpath.dirname(name), entry.linkname))
    if entry.issym() and (entry.linkname.startswith("/") or aim.split("/")[0] == ".."):
        raise Failed(f"{archive} holds a link out of it: {name[:80]}")
    if entry.islnk():
        _judge_hard(archive, name, os.path.join(home, entry.linkname))
    place = os.path.join(home, name)
    if os.path.lexists(place) and (os.path.islink(place) or not (entry.isdir() and os.path.isdir(place))):
        raise Failed(f"{archive} holds {name[:80]} twice")  # a file would be written through a link of its name
    # What goes through a link of the archive lands where the link leads.
    above = os.path.normpath(os.path.join(home, posixpath.dirname(name)))
    if os.path.realpath(above) != above:
        raise Failed(f"{archive} holds {name[:80]}, which lies behind a link")


def _judge_hard(archive: str, name: str, source: str) -> None:
    if not os.path.isfile(source):
        # tarfile would unpack a file that comes later in its place, with the owner and mode that it has in the archive.
        raise Failed(f"{archive} holds a link to what is not there yet: {name[:80]}")
    if os.path.realpath(source) != os.path.normpath(source):
        # tarfile sets owner and mode of what the link leads to, before it is known where that is.
        raise Failed(f"{archive} holds a hard link to a link: {name[:80]}")


def is_inside(name: str) -> bool:
    return not name.startswith("/") and ".." not in name.split("/")
