"""Encryption of payloads before they leave a machine (AES-256-GCM): the server and its database cannot read what they
store."""

import base64
import binascii
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadCodec

from gpuprov.core import safe_parse
from gpuprov.core.errors import GpuprovError

# The encoding that a payload declares, and the field with the name of its key.
ENCODING, KEY = b"binary/gpuprov-aes256gcm", "gpuprov-key"
NONCE = 12


class Encrypted(PayloadCodec):
    """A codec. The first key encrypts; all keys decrypt, so that a key can be replaced while roll-outs are open."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._keys = {hashlib.sha256(key).hexdigest()[:16].encode(): AESGCM(key) for key in keys}
        self._first = next(iter(self._keys))

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Encrypt each payload."""
        return [self._encrypted(payload) for payload in payloads]

    def _encrypted(self, payload: Payload) -> Payload:
        nonce = os.urandom(NONCE)
        data = nonce + self._keys[self._first].encrypt(nonce, payload.SerializeToString(), self._first)
        return Payload(metadata={"encoding": ENCODING, KEY: self._first}, data=data)

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Decrypt payloads. Refuses a payload that is not encrypted: senders without the key are not trusted."""
        return [self._decrypted(payload) for payload in payloads]

    def _decrypted(self, payload: Payload) -> Payload:
        name = payload.metadata.get(KEY, b"")
        if payload.metadata.get("encoding") != ENCODING:
            raise ValueError("a payload is not encrypted, and this side has a --payload-key")
        if name not in self._keys:
            raise ValueError(
                f"a payload is encrypted with the key {name.decode(errors='replace')}, which is missing here"
            )
        try:
            decrypted = Payload.FromString(self._keys[name].decrypt(payload.data[:NONCE], payload.data[NONCE:], name))
        except InvalidTag:
            raise ValueError("a payload was altered after it was encrypted") from None
        assert isinstance(decrypted, Payload)
        return decrypted


def key(path: Path) -> bytes:
    """Return the key in a file: 32 random bytes in base64. Raises GpuprovError if the file has no such key, or others
    may read it."""
    fix = f"openssl rand -base64 32 > {path}; chmod 600 {path}"
    try:
        data = safe_parse.read_own_contents(str(path), 4096)
        if path.stat().st_mode & 0o077:
            raise GpuprovError(f"{path}: others may read the key", f"chmod 600 {path}")
        key_bytes = base64.b64decode(data, validate=False) if data else b""
    except (OSError, safe_parse.NotOwn, safe_parse.Unreadable, binascii.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise GpuprovError(f"{path}: the key cannot be read: {reason}", fix) from error
    if len(key_bytes) != 32:
        raise GpuprovError(f"{path} has no key of 32 bytes in base64", fix)
    return key_bytes
