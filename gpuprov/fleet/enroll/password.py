"""One-time passwords for MokManager, and their hashes as mokutil --hash-file reads them."""

import hashlib
import re
import secrets

# Letters that have the same key on QWERTY, QWERTZ and AZERTY keyboards, without those that look like digits:
# MokManager knows the US keyboard only.
LETTERS = "bcdefghjknprstuvx"
LENGTH = 14
# What mokutil --generate-hash prints: SHA512_BASED in https://github.com/lcp/mokutil/blob/master/src/mokutil.c.
HASH = re.compile(r"\$6\$[./0-9A-Za-z]{1,16}\$[./0-9A-Za-z]{86}")
_DIGITS = "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ROUNDS = 5000


def make_password() -> str:
    return "".join(secrets.choice(LETTERS) for _ in range(LENGTH))


def make_salt() -> str:
    return "".join(secrets.choice(_DIGITS) for _ in range(16))


def hash_password(password: str, salt: str) -> str:
    """Return SHA-512 crypt of the password, as of crypt(5)."""
    # https://www.akkadia.org/drepper/SHA-crypt.txt. Python has no crypt any more, and mokutil --generate-hash would
    # show the password to all users of the host.
    word, grain = password.encode(), salt.encode()
    other = hashlib.sha512(word + grain + word).digest()
    mixed = word + grain + _repeat(other, len(word))
    length = len(word)
    while length:
        mixed += other if length & 1 else word
        length >>= 1
    first = hashlib.sha512(mixed).digest()
    words = _repeat(hashlib.sha512(word * len(word)).digest(), len(word))
    grains = _repeat(hashlib.sha512(grain * (16 + first[0])).digest(), len(grain))
    last = first
    for number in range(_ROUNDS):
        part = words if number & 1 else last
        part += (grains if number % 3 else b"") + (words if number % 7 else b"")
        last = hashlib.sha512(part + (last if number & 1 else words)).digest()
    return f"$6${salt}${_encode(last)}"


def _repeat(digest: bytes, length: int) -> bytes:
    return (digest * (length // len(digest) + 1))[:length]


def _encode(digest: bytes) -> str:
    """Return the digest in crypt's digits: three bytes, each 21 places after the one before, are four digits."""
    text = ""
    places = (0, 21, 42)
    for _ in range(21):
        number = int.from_bytes(bytes(digest[place] for place in places), "big")
        text += "".join(_DIGITS[number >> shift & 63] for shift in (0, 6, 12, 18))
        places = tuple((place + 22) % 63 for place in places)  # type: ignore[assignment]
    return text + _DIGITS[digest[63] & 63] + _DIGITS[digest[63] >> 6]
