"""Key pairs with certificates, made for these tests as they run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from gpuprov.spec.signing import Signing

Key = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
NAME = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test modules")])
SERIAL = 0x0A1B2C3D4E5F
FORMS = serialization.Encoding


@cache
def rsa_key(which: str = "one", bits: int = 2048) -> rsa.RSAPrivateKey:
    """Return a key; the same name always gives the same key."""
    assert which
    return rsa.generate_private_key(65537, bits)


def certificate(key: Key, *, begins: int = -1, ends: int = 365, form: FORMS = FORMS.PEM, serial: int = SERIAL) -> bytes:
    """Return a self-signed certificate, valid between these days from now."""
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(NAME)
        .issuer_name(NAME)
        .public_key(key.public_key())
        .serial_number(serial)
    )
    dated = made.not_valid_before(now + timedelta(days=begins)).not_valid_after(now + timedelta(days=ends))
    return dated.sign(key, hashes.SHA256()).public_bytes(form)


def private(key: Key, passphrase: bytes = b"") -> bytes:
    """Return the private key in PEM."""
    lock = serialization.BestAvailableEncryption(passphrase) if passphrase else serialization.NoEncryption()
    return key.private_bytes(FORMS.PEM, serialization.PrivateFormat.PKCS8, lock)


def site(folder: Path, key: bytes | None = None, crt: bytes | None = None) -> Signing:
    """Return the signing block of a site whose two files are in a folder."""
    (folder / "site.key").write_bytes(private(rsa_key()) if key is None else key)
    (folder / "site.crt").write_bytes(certificate(rsa_key()) if crt is None else crt)
    return Signing(key_file=str(folder / "site.key"), certificate_file=str(folder / "site.crt"))
