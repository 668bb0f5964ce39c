"""OpenPGP public keys: their fingerprints, and whether they are the expected ones. Standard library only.

Nothing here verifies a signature. A fingerprint is a hash over the primary key's own bytes, so the same fingerprint
means the same key; expiry and revocation in a self-signature are reported, and never make a key good.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypedDict

# https://www.rfc-editor.org/rfc/rfc9580#section-5 (packet types), 5.2.1 (signature types), 5.2.3.7 (subpackets)
SIGNATURE, SECRET_KEY, PUBLIC_KEY, SECRET_SUBKEY = 2, 5, 6, 7
CERTIFICATIONS, DIRECT, REVOCATION = range(0x10, 0x14), 0x1F, 0x20
CREATED, EXPIRES, ISSUER, ISSUER_FINGERPRINT = 2, 9, 16, 33
SHA1 = 2
ARMOUR = re.compile(rb"-----BEGIN PGP ([A-Z ]+)-----\r?\n(.*?)-----END PGP \1-----", re.DOTALL)
DAY = 86400


class NotAKey(ValueError):
    """The data is not a public key; the message says what it is instead."""


@dataclass
class Key:
    """A public key; `expires`: 0 for never, `hashes`: of its self-signatures, `signed`: when it got the newest."""

    fingerprint: str
    created: int
    raw: bytes
    expires: int = 0
    revoked: bool = False
    hashes: set[int] = field(default_factory=set)
    signed: int = 0

    @property
    def sha1(self) -> bool:
        """Return whether it is self-signed with SHA-1 only."""
        return self.hashes == {SHA1}


class Verdict(TypedDict):
    """The verdict on a key: `problem` is "" if it may."""

    problem: str
    warnings: list[str]
    fingerprints: list[str]


def parse_keys(data: str | bytes) -> list[Key]:
    """Return each key of the data.

    Takes armoured and binary keys, and either of them in base64. Raises NotAKey.
    """
    all_keys: list[Key] = []
    for tag, body, raw in split_packets(decode_data(data)):
        if tag in (SECRET_KEY, SECRET_SUBKEY):
            raise NotAKey("it holds a private key, which belongs on no host")
        if tag == PUBLIC_KEY:
            all_keys.append(parse_key(body, raw))
            continue
        if not all_keys:
            raise NotAKey("it does not begin with a public key")
        all_keys[-1].raw += raw
        if tag == SIGNATURE:
            _read_signature(all_keys[-1], body)
    if not all_keys:
        raise NotAKey("it is empty")
    return all_keys


def parse_fingerprints(text: str) -> list[str]:
    """Return the fingerprints in a person's text: separated by commas, with or without spaces, in either case."""
    return [word for part in text.split(",") if (word := "".join(part.split()).upper())]


def judge(data: str | bytes, accepted: str = "", now: float | None = None) -> Verdict:
    """Check whether the key may be trusted as the one with this fingerprint (or one of several).

    Without `accepted` the data must contain exactly one key.
    """
    expected = parse_fingerprints(accepted)
    try:
        all_keys = parse_keys(data)
    except NotAKey as error:
        return {"problem": f"it is not an OpenPGP public key: {error}", "warnings": [], "fingerprints": []}
    names = [key.fingerprint for key in all_keys]
    strange = [name for name in names if expected and name not in expected]
    problem = ""
    if strange:
        problem = f"its fingerprint is {', '.join(strange)}, expected is {', '.join(expected)}"
    elif lacking := [name for name in expected if name not in names]:
        problem = f"it holds {', '.join(names)}, and lacks {', '.join(lacking)}"
    elif not expected and len(names) > 1:
        problem = f"it holds {len(names)} keys ({', '.join(names)}), and no fingerprint says which are meant"
    elif revoked := [key.fingerprint for key in all_keys if key.revoked]:
        problem = f"its owner has revoked {', '.join(revoked)}"
    return {"problem": problem, "warnings": list_warnings(all_keys, now), "fingerprints": names}


def armour_keys(data: str | bytes, *, each: bool = False) -> str:
    """Return the keys as armoured text: all in one block (apt reads one), or each in its own (rpm imports one of each
    block)."""
    raws = [key.raw for key in parse_keys(data)]
    return "".join(armour_block(raw) for raw in (raws if each else [b"".join(raws)]))


def replace_rpm_keys(output: str) -> str:
    """Return the text of a probe, whose lines are `@rpmkey ID-RELEASE KEY`, with the key's whole fingerprint in place
    of rpm's ID.

    A line without a key stays unchanged.
    """
    # Before rpm 6 that ID is the last eight digits, which two keys may share.
    return re.sub(r"(?m)^@rpmkey (\w+)-(\w+) (\S+)$", complete_line, output)


def complete_line(line: re.Match[str]) -> str:
    try:
        return f"@rpmkey {parse_keys(line[3])[0].fingerprint.lower()}-{line[2]}"
    except NotAKey:
        return f"@rpmkey {line[1]}-{line[2]}"


def list_warnings(all_keys: Sequence[Key], now: float | None) -> list[str]:
    moment = time.time() if now is None else now
    texts = []
    for key in all_keys:
        if key.expires and key.expires <= moment:
            day = time.strftime("%Y-%m-%d", time.gmtime(key.expires))
            texts.append(f"the key {key.fingerprint} expired on {day}: package managers refuse what it signed since")
        elif key.expires and key.expires <= moment + 30 * DAY:
            day = time.strftime("%Y-%m-%d", time.gmtime(key.expires))
            texts.append(f"the key {key.fingerprint} expires on {day}")
        if key.sha1:
            # https://github.com/NVIDIA/cuda-repo-management/issues/34
            texts.append(
                f"the key {key.fingerprint} is self-signed with SHA-1 only: Debian 13's apt refuses it since 2026-02-01"
            )
    return texts


def decode_data(data: str | bytes) -> bytes:
    raw = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
    if b"-----BEGIN PGP" not in raw:
        try:
            raw = base64.b64decode(b"".join(raw.split()), validate=True)
        except (binascii.Error, ValueError):
            return raw
    if b"-----BEGIN PGP" not in raw:
        return raw
    blocks = ARMOUR.findall(raw)
    if len(blocks) != raw.count(b"-----BEGIN PGP"):  # what this parser passes over, another may read
        raise NotAKey("its armour is damaged")
    if any(kind == b"PRIVATE KEY BLOCK" for kind, _ in blocks):
        raise NotAKey("it holds a private key, which belongs on no host")
    return b"".join(decode_block(text) for kind, text in blocks if kind == b"PUBLIC KEY BLOCK")


def decode_block(text: bytes) -> bytes:
    lines = text.replace(b"\r", b"").split(b"\n")
    while lines and lines[0].strip():  # headers such as "Version:" end with an empty line
        if b":" not in lines[0]:
            break
        lines.pop(0)
    body = b"".join(line.strip() for line in lines if not line.startswith(b"="))
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError) as error:
        raise NotAKey("its armour is damaged") from error


def split_packets(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield tag, body and the whole packet."""
    # https://www.rfc-editor.org/rfc/rfc9580#section-4.2
    if data[8:12] == b"KBXf":
        raise NotAKey("it is a keybox of GnuPG, not an exported key (gpg --export makes one)")
    place = 0
    while place < len(data):
        start, first = place, data[place]
        if not first & 0x80:
            raise NotAKey("it is not made of OpenPGP packets")
        try:
            place, length = parse_length(data, place + 1, first)
        except (IndexError, struct.error) as error:
            raise NotAKey("it ends in the middle of a packet") from error
        if place + length > len(data):
            raise NotAKey("it ends in the middle of a packet")
        tag = first & 0x3F if first & 0x40 else first >> 2 & 0x0F
        yield tag, data[place : place + length], data[start : place + length]
        place += length


def parse_length(data: bytes, place: int, first: int) -> tuple[int, int]:
    """Return the start and length of the body."""
    if not first & 0x40:
        size = (1, 2, 4, 0)[first & 3]
        if not size:
            raise NotAKey("it has a packet of unknown length")
        return place + size, int.from_bytes(data[place : place + size], "big")
    octet = data[place]
    if octet < 192:
        return place + 1, octet
    if octet < 224:
        return place + 2, (octet - 192 << 8) + data[place + 1] + 192
    if octet < 255:
        raise NotAKey("it has a packet in parts, which keys never have")
    return place + 5, int(struct.unpack(">I", data[place + 1 : place + 5])[0])


def parse_key(body: bytes, raw: bytes) -> Key:
    """Parse a key."""
    # https://www.rfc-editor.org/rfc/rfc9580#section-5.5.4
    version = body[0] if body else 0
    if version == 4:
        digest = hashlib.sha1(b"\x99" + struct.pack(">H", len(body)) + body, usedforsecurity=False).hexdigest()
    elif version == 6:
        digest = hashlib.sha256(b"\x9b" + struct.pack(">I", len(body)) + body).hexdigest()
    else:
        raise NotAKey(f"it is a key of version {version}; known are 4 and 6")
    created = int.from_bytes(body[1:5], "big")
    return Key(digest.upper(), created, raw)


def _read_signature(key: Key, body: bytes) -> None:
    """Record the statements of a self-signature; of several, the newest counts."""
    if len(body) < 6 or body[0] not in (4, 6):
        return
    wide = 4 if body[0] == 6 else 2
    kind, hashed = body[1], int.from_bytes(body[4 : 4 + wide], "big")
    after = 4 + wide + hashed
    unhashed = int.from_bytes(body[after : after + wide], "big")
    subpackets = parse_subpackets(body[4 + wide : after])
    others = parse_subpackets(body[after + wide : after + wide + unhashed])
    issuer = (subpackets.get(ISSUER_FINGERPRINT) or others.get(ISSUER_FINGERPRINT) or b"")[1:].hex().upper()
    short = (subpackets.get(ISSUER) or others.get(ISSUER) or b"").hex().upper()
    fingerprint = key.fingerprint
    if not (issuer == fingerprint or (not issuer and short and short in (fingerprint[-16:], fingerprint[:16]))):
        return
    if kind == REVOCATION:
        key.revoked = True
    if kind not in CERTIFICATIONS and kind != DIRECT:
        return
    key.hashes.add(body[3])
    when = int.from_bytes(subpackets.get(CREATED, b""), "big")
    # A direct signature often names revokers only.
    if when >= key.signed and (kind != DIRECT or EXPIRES in subpackets):
        key.signed = when
        lasts = int.from_bytes(subpackets.get(EXPIRES, b""), "big")
        key.expires = key.created + lasts if lasts else 0


def parse_subpackets(area: bytes) -> dict[int, bytes]:
    packets: dict[int, bytes] = {}
    place = 0
    while place < len(area):
        octet = area[place]
        if octet < 192:
            start, length = place + 1, octet
        elif octet < 255:
            start, length = place + 2, (octet - 192 << 8) + (area[place + 1] if place + 1 < len(area) else 0) + 192
        else:
            start, length = place + 5, int.from_bytes(area[place + 1 : place + 5], "big")
        if not length or start >= len(area):
            break
        packets.setdefault(area[start] & 0x7F, area[start + 1 : start + length])
        place = start + length
    return packets


def armour_block(raw: bytes) -> str:
    crc = 0xB704CE  # https://www.rfc-editor.org/rfc/rfc9580#section-6.1.1; rpm 4 refuses armour without it
    for octet in raw:
        crc ^= octet << 16
        for _ in range(8):
            crc <<= 1
            if crc & 0x1000000:
                crc ^= 0x1864CFB
    text = base64.b64encode(raw).decode()
    lines = [text[at : at + 64] for at in range(0, len(text), 64)]
    check = base64.b64encode((crc & 0xFFFFFF).to_bytes(3, "big")).decode()
    head, foot = "-----BEGIN PGP PUBLIC KEY BLOCK-----", "-----END PGP PUBLIC KEY BLOCK-----"
    return "\n".join([head, "", *lines, f"={check}", foot, ""])
