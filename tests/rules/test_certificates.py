"""What identifies a certificate is what cryptography says, and what is none is refused with the reason."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from gpuprov.rules import certificates
from tests import key_pairs
from tests.rows import run_each


@run_each("form", [key_pairs.FORMS.PEM, key_pairs.FORMS.DER])
@run_each("number", [1, 0x80, key_pairs.SERIAL, 2**159 - 1])
def test_it_is_what_another_reader_says(form: key_pairs.FORMS, number: int) -> None:
    known = certificates.identity(key_pairs.certificate(key_pairs.rsa_key(), form=form, serial=number))
    read = x509.load_der_x509_certificate(base64.b64decode(known["der"]))
    assert known["fingerprint"] == read.fingerprint(hashes.SHA1()).hex()
    assert int(known["serial"], 16) == read.serial_number == number


PEM = key_pairs.certificate(key_pairs.rsa_key())
DER = key_pairs.certificate(key_pairs.rsa_key(), form=key_pairs.FORMS.DER)
NONE = {
    "empty": (b"", "it is none"),
    "text": (b"a certificate\n", "it is none"),
    "the key": (key_pairs.private(key_pairs.rsa_key()), "it holds a private key"),
    "two": (PEM + PEM, "it holds 2 certificates"),
    "damaged": (PEM.replace(b"MII", b"M!I", 1), "its base64 is damaged"),
    "cut off": (DER[:100], "it is cut off"),
    "another sequence": (b"\x30\x03\x02\x01\x05", "it is none"),
    "one octet": (b"\x30", "it is cut off"),
}


@run_each("name", NONE)
def test_what_is_none_is_refused(name: str) -> None:
    content, reason = NONE[name]
    with pytest.raises(certificates.NotACertificate, match=reason):
        certificates.identity(content)


def test_modinfo_shows_the_same_serial_number_otherwise() -> None:
    assert certificates.serial("0A:1B:2C:3D:4E:5F") == f"{key_pairs.SERIAL:x}"
    assert certificates.serial("00:0F") == "f"
    assert certificates.serial("") == ""
    assert certificates.serial("00") == "0"


def test_the_file_is_read_and_nothing_without_one(tmp_path: Path) -> None:
    (tmp_path / "site.crt").write_bytes(PEM)
    assert certificates.of_file(str(tmp_path / "site.crt")) == certificates.identity(PEM)
    assert certificates.of_file("") == {}
