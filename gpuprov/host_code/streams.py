"""The output of a script on a host as one word: bytes that are not UTF-8 cannot be part of a module result or JSON."""

from __future__ import annotations

import base64
import subprocess
import zlib

# Maximum size of both streams together, in bytes.
MOST = 64 << 20


def pack_streams(script: str) -> str:
    """Run POSIX sh; return both of its streams, one after the other, compressed and in base64."""
    done = subprocess.run(["/bin/sh", "-s"], input=script.encode(), capture_output=True, check=False)
    return base64.b64encode(zlib.compress(done.stdout + b"\n" + done.stderr)).decode()


def unpack_streams(word: str) -> bytes:
    """Return the streams. Raises ValueError for an invalid word, or one that expands to more than any host prints."""
    whole = zlib.decompressobj()
    try:
        streams = whole.decompress(base64.b64decode(word, validate=True), MOST)
    except zlib.error as error:
        raise ValueError(f"what the host printed cannot be unpacked: {error}") from error
    if not whole.eof:
        raise ValueError(f"what the host printed was cut off, or is more than {MOST >> 20} MiB")
    return streams
