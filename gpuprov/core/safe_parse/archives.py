"""Archives and compressed files of others, read without writing anything: sizes are bounded, no name in them is a path
here."""

import bz2
import codecs
import io
import lzma
import os
import posixpath
import stat
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from gpuprov.core.safe_parse.files import read_contents
from gpuprov.core.safe_parse.limits import Unreadable
from gpuprov.core.safe_parse.tar_headers import Cut, Member
from gpuprov.core.safe_parse.zips import MAGIC, list_zip

# Files and folders of one record; an sosreport of a large host has about 30,000.
MEMBERS = 200_000
# Bytes of one file that is read.
MEMBER = 64 << 20
# Bytes of an archive, unpacked; and of the files read from a folder.
TOTAL = 1 << 30
# Bytes that unpacking xz may take of memory: its header asks for it.
DECODER = 256 << 20
CHUNK = 1 << 16

_MAGIC: tuple[tuple[bytes, Callable[[], Any]], ...] = (
    (b"\x1f\x8b", lambda: zlib.decompressobj(31)),
    (b"\xfd7zXZ\x00", lambda: lzma.LZMADecompressor(memlimit=DECODER)),
    (b"BZh", bz2.BZ2Decompressor),
)


# The first bytes of what zstd has compressed (RFC 8878).
ZSTD = b"\x28\xb5\x2f\xfd"


class Contents(NamedTuple):
    """The bytes of a file, unpacked."""

    data: bytes
    # It is compressed, and ends before its end.
    cut: bool = False


class Unpacked(io.RawIOBase):
    """The bytes of a file, unpacked if it is compressed, as many as may be. Raises Unreadable for more, and for damaged
    data. `cut`: the compressed data ended before their end; known once all is read."""

    cut = False

    def __init__(self, file: io.BufferedReader) -> None:
        self._file = file
        head = file.peek(6)[:6]
        if head.startswith(ZSTD):
            raise Unreadable("it is compressed by zstd, which gpuprov does not unpack: unzstd FILE")
        if head.startswith(MAGIC):
            raise Unreadable("it is a zip archive in the place of a text: name its file with --from, or unzip it first")
        self._make = next((make for magic, make in _MAGIC if head.startswith(magic)), None)
        self._decoder = self._make() if self._make else None
        self._pending = b""
        self._buffer = b""
        self._count = 0

    def readable(self) -> bool:
        return True

    @property
    def compressed(self) -> bool:
        return self._make is not None

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer, as io.BufferedReader asks for."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

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
                    self.cut = True  # what there is, is read
                    return b""
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


def is_archive(path: Path) -> bool:
    """Return whether a file is a tar archive, compressed or not, or a zip archive."""
    if is_zip(path):
        return True
    with path.open("rb") as file:
        head = Unpacked(file).read(512)
    return head[257:262] == b"ustar"


def is_zip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def read_unpacked(path: Path) -> Contents:
    """A single file, unpacked if it is compressed. Raises Unreadable for one that is larger than MEMBER."""
    with path.open("rb") as file:
        return _read_whole(file)


def _read_whole(file: io.BufferedReader) -> Contents:
    unpacked = Unpacked(file)
    data = check_size(unpacked.read(MEMBER + 1))
    return Contents(data, unpacked.cut)


def check_size(data: bytes) -> bytes:
    """The bytes, if they are no more than one file may have."""
    if len(data) > MEMBER:
        raise Unreadable(f"a file in it is larger than {MEMBER >> 20} MiB")
    return data


def unpack_inner(data: bytes) -> Contents:
    """A file that was found inside a record, unpacked if it is compressed."""
    return _read_whole(io.BufferedReader(io.BytesIO(data)))


def unpack_head(data: bytes, size: int) -> bytes:
    """The first bytes of the same."""
    return Unpacked(io.BufferedReader(io.BytesIO(data))).read(size)


def unpack_stream(stream: IO[bytes]) -> tuple[IO[bytes], Unpacked | None]:
    """A stream as one of what it unpacks to, and its Unpacked; the stream itself where it is not compressed."""
    if not isinstance(stream, io.BufferedIOBase):
        return stream, None
    source: Any = stream
    buffered = source if isinstance(source, io.BufferedReader) else io.BufferedReader(source)
    unpacked = Unpacked(buffered)
    return (io.BufferedReader(unpacked), unpacked) if unpacked.compressed else (buffered, None)


def list_members(path: Path, is_selected: Callable[[str], bool]) -> Iterator[tuple[str, bytes | Unreadable]]:
    """Yield the wanted files of an archive, by name."""
    if is_zip(path):
        yield from list_zip(path, is_selected, MEMBERS, MEMBER, TOTAL)
        return
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
            except FileNotFoundError:
                continue  # it has gone meanwhile
            except OSError as error:
                yield inside, Unreadable(error.strerror or "it cannot be read")
