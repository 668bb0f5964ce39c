"""The block `signing`: a pair of files that cannot sign is refused before any host is asked."""

from __future__ import annotations

from pathlib import Path

import msgspec
from cryptography.hazmat.primitives.asymmetric import ec

from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.spec.problem import Origin, format_path
from gpuprov.spec.problem import Path as SpecPath
from gpuprov.spec.repository import locate_files
from gpuprov.spec.signing import Signing, find_problems
from tests import key_pairs
from tests.key_pairs import certificate, private, rsa_key, site
from tests.rows import run_each


def told(block: Signing) -> list[str]:
    return [f"{format_path(p.path)}: {p.message} | {p.fix}" for p in find_problems(block, ("nvidia_driver", "signing"))]


def test_nothing_is_asked_by_default() -> None:
    assert not told(Signing())


@run_each("form", [key_pairs.FORMS.PEM, key_pairs.FORMS.DER])
def test_a_pair_is_right(tmp_path: Path, form: key_pairs.FORMS) -> None:
    assert not told(site(tmp_path, crt=certificate(rsa_key(), form=form)))


def test_a_key_in_the_vault_is_believed(tmp_path: Path) -> None:
    assert not told(site(tmp_path, key=b"$ANSIBLE_VAULT;1.1;AES256\n6162\n"))


EC = ec.generate_private_key(ec.SECP256R1())
REFUSED = {
    "another pair's key": (private(rsa_key("two")), None, "key_file", "is not the key of the certificate"),
    "expired": (None, certificate(rsa_key(), begins=-9, ends=-2), "certificate_file", "site.crt expired 20"),
    "not yet valid": (None, certificate(rsa_key(), begins=2), "certificate_file", "is valid only from 20"),
    "a passphrase": (private(rsa_key(), b"secret"), None, "key_file", "has a passphrase"),
    "no key": (b"nothing\n", None, "key_file", "is not a private key in PEM"),
    "the certificate as key": (certificate(rsa_key()), None, "key_file", "is not a private key in PEM"),
    "no certificate": (None, b"nothing\n", "certificate_file", "is not a certificate: it is none"),
    "the key as certificate": (None, private(rsa_key()), "certificate_file", "it holds a private key"),
    "a damaged certificate": (
        None,
        b"\x30\x82\x00\x05\x30\x03\x02\x01\x05",
        "certificate_file",
        "is not a certificate",
    ),
    "short": (
        private(rsa_key("short", 1024)),
        certificate(rsa_key("short", 1024)),
        "key_file",
        "is not an RSA key of 2048",
    ),
    "another algorithm": (private(EC), certificate(EC), "key_file", "is not an RSA key"),
}


@run_each("name", REFUSED)
def test_what_cannot_sign_is_refused(tmp_path: Path, name: str) -> None:
    key, crt, field, reason = REFUSED[name]
    said = told(site(tmp_path, key, crt))
    assert len(said) == 1, said
    assert said[0].startswith(f"nvidia_driver.signing.{field}: nvidia_driver.signing.{field} ")
    assert reason in said[0]
    assert said[0].partition(" | ")[2], "no way out"


def test_files_that_are_not_there(tmp_path: Path) -> None:
    said = told(Signing(key_file=str(tmp_path / "a.key"), certificate_file=str(tmp_path / "a.crt")))
    assert len(said) == 2
    assert all("cannot be read: No such file or directory" in line for line in said)


@run_each("field", ["key_file", "certificate_file"])
def test_one_of_the_two_is_not_enough(tmp_path: Path, field: str) -> None:
    whole = site(tmp_path)
    said = told(msgspec.structs.replace(whole, **{field: ""}))
    assert len(said) == 1
    assert f"nvidia_driver.signing.{field} is missing" in said[0]


def test_what_is_not_there_cannot_be_enrolled() -> None:
    [said] = told(Signing(enroll="prepared"))
    assert said.startswith("nvidia_driver.signing.enroll: nvidia_driver.signing.enroll is prepared, and there is no")


def test_no_message_holds_any_of_the_key(tmp_path: Path) -> None:
    secret = private(rsa_key("two")).decode().splitlines()[3]
    assert secret not in "".join(told(site(tmp_path, private(rsa_key("two")))))


def test_the_files_stand_beside_what_names_them() -> None:
    block = NvidiaDriver(signing=Signing(key_file="keys/site.key", certificate_file="/etc/site.crt"))
    origins: dict[SpecPath, Origin] = {("nvidia_driver", "signing"): Origin("/fleet/group_vars/all.yml")}
    found = locate_files(block, "nvidia_driver", origins).signing
    assert found == Signing(key_file="/fleet/group_vars/keys/site.key", certificate_file="/etc/site.crt")
