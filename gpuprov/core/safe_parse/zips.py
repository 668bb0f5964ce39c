"""Zip archives of others, as people attach them to tickets, read within the same limits as tar archives."""

import io
import posixpath
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from gpuprov.core.safe_parse.limits import Unreadable

# The first bytes of an archive that has members.
MAGIC = b"PK\x03\x04"
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2)
_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, OverflowError, NotImplementedError)


def list_zip(
    path: Path, is_selected: Callable[[str], bool], members: int, member: int, total: int
) -> Iterator[tuple[str, bytes | Unreadable]]:
    """Yield the wanted files, in their order. `members`, `member`, `total`: how many there may be, and the bytes that
    one and all of them may have unpacked. Raises Unreadable for what is damaged or exceeds these."""
    if path.stat().st_size > total:
        raise Unreadable(f"larger than {total >> 20} MiB")
    try:
        archive = zipfile.ZipFile(path)
    except _ERRORS as error:
        raise Unreadable(f"a zip archive that is damaged, or breaks off: {error}") from error
    left = total
    with archive:
        entries = archive.infolist()
        if len(entries) > members:
            raise Unreadable(f"more than {members} files in it")
        for entry in entries:
            name = posixpath.normpath(entry.filename).lstrip("/")
            linked = stat.S_ISLNK(entry.external_attr >> 16)
            if entry.is_dir() or linked or name.startswith("..") or "\0" in name or not is_selected(name):
                continue
            data = _read(archive, entry, min(member, left))
            if isinstance(data, bytes):
                left -= len(data)
            elif left < member:
                raise Unreadable(f"unpacked it is larger than {total >> 20} MiB")
            yield name, data


def _read(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, size: int) -> bytes | Unreadable:
    """Return a member; Unreadable for one that is encrypted, damaged, or larger than this, whatever it claims."""
    if entry.flag_bits & 1:
        return Unreadable("encrypted with a password: unpack it first")
    if entry.compress_type not in METHODS:
        return Unreadable("compressed in a way that gpuprov does not unpack: unzip it first")
    parts, length = io.BytesIO(), 0
    try:
        with archive.open(entry) as file:
            while data := file.read(min(1 << 16, size + 1 - length)):
                length += parts.write(data)
                if length > size:
                    return Unreadable(f"larger than {size >> 20} MiB")
    except (*_ERRORS, RuntimeError) as error:
        return Unreadable(f"damaged: {error}")
    return parts.getvalue()
