"""Archives and compressed files of others, read without writing anything: sizes are bounded, no name in them is a path
here."""

from __future__ import annotations

import bz2
import codecs
import io
import lzma
import os
import posixpath
import re
import stat
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

from gpuprov.core.safe_parse.files import read_contents
from gpuprov.core.safe_parse.limits import Unreadable

MEMBERS = 200_000
"""Files and folders of one record; an sosreport of a large host has about 30,000."""
MEMBER = 64 << 20
"""Bytes of one file that is read."""
TOTAL = 1 << 30
"""Bytes of an archive, unpacked; and of the files read from a folder."""
DECODER = 256 << 20
"""Bytes that unpacking xz may take of memory: its header asks for it."""
HEADER = 1 << 20
"""Bytes of the name or extended header of one member."""
RECORD = 1 << 10
"""Bytes of the name of a record in it, and its length."""
CHUNK = 1 << 16

_MAGIC: tuple[tuple[bytes, Callable[[], Any]], ...] = (
    (b"\x1f\x8b", lambda: zlib.decompressobj(31)),
    (b"\xfd7zXZ\x00", lambda: lzma.LZMADecompressor(memlimit=DECODER)),
    (b"BZh", bz2.BZ2Decompressor),
)


class Cut(Unreadable):
    """An archive that ends before its end."""


class Tree(dict[str, bytes | Unreadable]):
    """Files by relative name. `cut`: the archive that they are from ends before its end, so that others may be missing."""

    cut = False


class Unpacked(io.RawIOBase):
    """The bytes of a file, unpacked if it is compressed, as many as may be. Raises Unreadable for more, and for damaged
    data."""

    def __init__(self, file: io.BufferedReader) -> None:
        self._file = file
        head = file.peek(6)[:6]
        self._make = next((make for magic, make in _MAGIC if head.startswith(magic)), None)
        self._decoder = self._make() if self._make else None
        self._pending = b""
        self._buffer = b""
        self._count = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes; fewer only at the end."""
        if size > MEMBER or size < 0:
            size = MEMBER + 1
        parts = [self._buffer]
        length = len(self._buffer)
        while length < size and (more := self._more()):
            parts.append(more)
            length += len(more)
        data = b"".join(parts)
        self._buffer = data[size:]
        return data[:size]

    def _more(self) -> bytes:
        try:
            data = self._next()
        except (zlib.error, lzma.LZMAError, OSError, EOFError) as error:
            raise Unreadable(f"damaged: {error}") from error
        self._count += len(data)
        if self._count > TOTAL:
            raise Unreadable(f"unpacked it is larger than {TOTAL >> 20} MiB")
        return data

    def _next(self) -> bytes:
        if self._decoder is None:
            return self._file.read(CHUNK)
        while True:
            if self._decoder.eof:
                self._pending = self._decoder.unused_data
                if not (self._pending or self._file.peek(1)):
                    return b""
                assert self._make is not None
                self._decoder = self._make()  # another stream, as `cat a.gz b.gz` makes
            if not self._pending and (_is_zlib(self._decoder) or self._decoder.needs_input):
                self._pending = self._file.read(CHUNK)
                if not self._pending:
                    return b""  # cut off: what there is, is read
            data: bytes = self._decoder.decompress(self._pending, CHUNK)
            self._pending = self._decoder.unconsumed_tail if _is_zlib(self._decoder) else b""
            if data:
                return data


def _is_zlib(decoder: Any) -> bool:
    return hasattr(decoder, "unconsumed_tail")


def decode_text(data: bytes) -> str:
    """Bytes of others as text; what is neither UTF-8 nor UTF-16 with its mark, as PowerShell writes it, becomes a
    replacement character. A mark at the beginning is left out."""
    encoding = "utf-16" if data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8-sig"
    return data.decode(encoding, "replace").replace("\r\n", "\n")


def read_tree(path: Path, is_selected: Callable[[str], bool]) -> Tree:
    """The regular files of a folder or archive whose name is wanted, by relative name. Links are not followed.

    A single file that cannot be read stands there as what is wrong with it. Of an archive that was cut off there are
    the files that are whole.
    """
    result = Tree()
    total = 0
    try:
        for name, data in walk_folder(path, is_selected) if path.is_dir() else list_members(path, is_selected):
            total += 0 if isinstance(data, Unreadable) else len(data)
            if total > TOTAL:
                raise Unreadable(f"what is read of it is larger than {TOTAL >> 20} MiB")
            result.setdefault(name, data)
    except Cut:
        result.cut = True
    return result


def is_archive(path: Path) -> bool:
    """Return whether a file is a tar archive, compressed or not."""
    with path.open("rb") as file:
        head = Unpacked(file).read(512)
    return head[257:262] == b"ustar"


def read_unpacked(path: Path) -> bytes:
    """A single file, unpacked if it is compressed. Raises Unreadable for one that is larger than MEMBER."""
    with path.open("rb") as file:
        return check_size(Unpacked(file).read(MEMBER + 1))


def check_size(data: bytes) -> bytes:
    """The bytes, if they are no more than one file may have."""
    if len(data) > MEMBER:
        raise Unreadable(f"a file in it is larger than {MEMBER >> 20} MiB")
    return data


def unpack_inner(data: bytes) -> bytes:
    """A compressed file that was found inside a record."""
    return check_size(Unpacked(io.BufferedReader(io.BytesIO(data))).read(MEMBER + 1))


class _Again:
    """A stream of which some bytes were read, and are read once more."""

    def __init__(self, data: bytes, stream: Any) -> None:
        self._data, self._stream = data, stream

    def read(self, size: int) -> bytes:
        data, self._data = self._data, b""
        return data or bytes(self._stream.read(size))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


_RECORD = re.compile(rb"([1-9][0-9]{0,6}) [^=\0]+=")


def _judge_records(data: bytes) -> None:
    """Raise Unreadable for an extended header that is none: each record begins with its length, and ends with a line
    feed (pax(1))."""
    at = 0
    while at < len(data) and data[at : at + 1] != b"\0":
        record = data[at : at + int(match[1])] if (match := _RECORD.match(data, at, at + RECORD)) else b""
        if match is None or len(record) < int(match[1]) or not record.endswith(b"\n") or match.end() > at + len(record):
            raise Unreadable("damaged: an extended header that is none")
        at += len(record)


class Member(tarfile.TarInfo):
    """A member whose headers are bounded: tarfile reads long names, pax headers and lists of holes whole. Two blocks of
    zeros are an archive's end (pax(1)): where there is no further header before them, it was cut off."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        if len(buf) < tarfile.BLOCKSIZE:
            raise Cut("cut off")
        return super().frombuf(buf, encoding, errors)

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        headers = (*tarfile.GNU_TYPES[:2], tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
        if self.type in headers and self.size > HEADER:
            raise Unreadable(f"damaged: a header of {self.size} bytes")
        return super()._proc_member(archive)  # type: ignore[misc,no-any-return]

    def _proc_pax(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        """Read records as tarfile does, but only those that are as long as they claim: tarfile copies others without
        end."""
        stream: Any = archive.fileobj
        data = stream.read(self._block(self.size))  # type: ignore[attr-defined]
        _judge_records(data[: self.size])
        archive.fileobj = _Again(data, stream)
        try:
            return super()._proc_pax(archive)  # type: ignore[misc,no-any-return]
        finally:
            archive.fileobj = stream

    def _proc_sparse(self, _archive: tarfile.TarFile) -> tarfile.TarInfo:
        raise Unreadable("a sparse file is in it; pack it again without --sparse")

    def _proc_gnusparse_10(self, *_: object) -> None:
        raise Unreadable("a sparse file is in it; pack it again without --sparse")


def list_members(path: Path, is_selected: Callable[[str], bool]) -> Iterator[tuple[str, bytes | Unreadable]]:
    with path.open("rb") as file:
        try:
            with tarfile.open(fileobj=Unpacked(file), mode="r|", tarinfo=Member) as archive:
                for count, member in enumerate(iter(archive.next, None)):
                    archive.members.clear()  # type: ignore[attr-defined]  # tarfile keeps all that it has read
                    if count >= MEMBERS:
                        raise Unreadable(f"more than {MEMBERS} files in it")
                    # What is not wanted is read, too, as far as its header says, also where nothing comes any more.
                    if archive.offset > TOTAL:
                        raise Unreadable(f"unpacked it is larger than {TOTAL >> 20} MiB")
                    name = posixpath.normpath(member.name).lstrip("/")
                    if not member.isreg() or name.startswith("..") or "\0" in name or not is_selected(name):
                        continue
                    if member.size > MEMBER:
                        yield name, Unreadable(f"larger than {MEMBER >> 20} MiB")
                        continue
                    file_ = archive.extractfile(member)
                    if file_ is not None:
                        yield name, file_.read()
        except (tarfile.TarError, ValueError, OverflowError, RecursionError) as error:
            if isinstance(error, Unreadable):
                raise
            cut = "unexpected end of data" in str(error)
            raise (Cut if cut else Unreadable)(f"damaged: {error}") from error


def walk_folder(path: Path, is_selected: Callable[[str], bool]) -> Iterator[tuple[str, bytes | Unreadable]]:
    """Yield the wanted files of a folder, by relative name, folder after folder."""
    count = 0
    for folder, folders, names in os.walk(path, followlinks=False):
        folders.sort()
        for name in sorted(names):
            count += 1
            if count > MEMBERS:
                raise Unreadable(f"more than {MEMBERS} files in it")
            full_path = os.path.join(folder, name)
            inside = os.path.relpath(full_path, path).replace(os.sep, "/")
            try:
                if is_selected(inside) and not stat.S_ISLNK(os.lstat(full_path).st_mode):
                    yield inside, read_contents(full_path, MEMBER)
            except Unreadable as error:
                yield inside, error
            except OSError:
                continue  # a file of a report that may not be read, or has gone: as if it were not in it
