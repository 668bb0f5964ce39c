"""Headers of tar archives of others: bounded, and judged before tarfile reads them."""

import re
import tarfile
from typing import Any, Self

from gpuprov.core.safe_parse.limits import Unreadable

# Bytes of the name or extended header of one member.
HEADER = 1 << 20
# Bytes of the name of a record in it, and its length.
RECORD = 1 << 10


class Cut(Unreadable):
    """An archive that ends before its end."""


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
