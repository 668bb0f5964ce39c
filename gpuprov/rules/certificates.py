"""X.509 certificates: their identity for the kernel, the firmware and modinfo. Standard library only.

Nothing here verifies a signature or a date.
"""

import base64
import binascii
import errno
import hashlib
import os
import re
import stat

# https://www.rfc-editor.org/rfc/rfc5280#section-4.1
SEQUENCE, INTEGER, VERSION = 0x30, 0x02, 0xA0
PEM = re.compile(rb"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.DOTALL)


# Maximum number of bytes to read: a certificate has some thousand.
MOST = 1 << 20


class NotACertificate(ValueError):
    """The data is not a certificate; the message says what it is instead."""


def identity(content: bytes) -> dict[str, str]:
    """Identify one certificate, PEM or DER: `der` (base64), `fingerprint` (SHA-1 of that, as in mokutil), `serial`
    (hexadecimal, as modinfo's sig_key without colons) and `content` (SHA-256 of the input). Raises NotACertificate."""
    der = _read_der(content)
    try:
        outer, _ = _read_element(der, 0, SEQUENCE)
        signed, _ = _read_element(outer, 0, SEQUENCE)
        start = _read_element(signed, 0, VERSION)[1] if signed[0] == VERSION else 0
        serial, _ = _read_element(signed, start, INTEGER)
    except IndexError:
        raise NotACertificate("it is cut off") from None
    number = int.from_bytes(serial, "big")
    return {
        "der": base64.b64encode(der).decode(),
        "fingerprint": hashlib.sha1(der, usedforsecurity=False).hexdigest(),
        "serial": f"{number:x}",
        "content": hashlib.sha256(content).hexdigest(),
    }


def of_file(path: str) -> dict[str, str]:
    """Return the identity of the certificate in a file of this machine; empty without a file name. Raises OSError, also
    if it is not a regular file, and NotACertificate."""
    if not path:
        return {}
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "this is not a file", path)
        return identity(file.read(MOST))


def serial(shown: str) -> str:
    """Convert a serial number from modinfo's or openssl's form to that of `identity`."""
    digits = shown.replace(":", "").strip().lower().lstrip("0")
    return digits or ("0" if shown.strip() else "")


def _read_der(content: bytes) -> bytes:
    if content[:1] == bytes([SEQUENCE]):
        return content
    blocks: list[bytes] = PEM.findall(content)
    if not blocks:
        raise NotACertificate(
            "it holds a private key, no certificate" if b"PRIVATE KEY-----" in content else "it is none"
        )
    if len(blocks) > 1:
        raise NotACertificate(f"it holds {len(blocks)} certificates")
    try:
        return base64.b64decode(b"".join(blocks[0].split()), validate=True)
    except binascii.Error:
        raise NotACertificate("its base64 is damaged") from None


def _read_element(data: bytes, at: int, tag: int) -> tuple[bytes, int]:
    """Return the content of the element that begins there, and the start of the next one. Raises IndexError,
    NotACertificate."""
    if data[at] != tag:
        raise NotACertificate("it is none")
    length, start = data[at + 1], at + 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(data[at + 2 : start], "big")
    if start + length > len(data):
        raise IndexError
    return data[start : start + length], start + length
