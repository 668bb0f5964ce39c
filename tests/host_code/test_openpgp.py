"""Fingerprints of public keys, and which keys are refused."""

from __future__ import annotations

import base64
import hashlib
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from gpuprov.host_code import openpgp
from tests import public_keys as made
from tests.rows import run_each

BINARY = openpgp.parse_keys(made.GOOD)[0].raw
KEYS = {
    made.GOOD_FINGERPRINT: made.GOOD,
    made.OTHER_FINGERPRINT: made.OTHER,
    made.EXPIRED_FINGERPRINT: made.EXPIRED,
    made.SHA1_FINGERPRINT: made.SHA1,
    made.REVOKED_FINGERPRINT: made.REVOKED,
}


@run_each(("fingerprint", "text"), KEYS.items(), ids=lambda value: value[:8])
def test_the_fingerprint_is_the_one_that_gpg_prints(fingerprint: str, text: str) -> None:
    assert [key.fingerprint for key in openpgp.parse_keys(text)] == [fingerprint]


FORMS = {
    "armoured": made.GOOD,
    "armoured, as bytes": made.GOOD.encode(),
    "with the line ends of Windows": made.GOOD.replace("\n", "\r\n"),
    "with words around it": f"the key:\n{made.GOOD}\nthat was it\n",
    "with a header": made.GOOD.replace("BLOCK-----\n\n", "BLOCK-----\nVersion: GnuPG v1\n\n", 1),
    "binary": BINARY,
    "binary in base64": base64.b64encode(BINARY).decode(),
    "armoured in base64, in lines": base64.encodebytes(made.GOOD.encode()).decode(),
    "armoured by us": openpgp.armour_keys(BINARY),
}


@run_each("data", FORMS.values(), ids=list(FORMS))
def test_all_forms_of_a_key_are_read(data: str | bytes) -> None:
    assert openpgp.judge(data, made.GOOD_FINGERPRINT)["problem"] == ""


def test_a_key_of_version_6_has_a_fingerprint_of_sha256() -> None:
    body = b"\x06" + struct.pack(">I", 1_700_000_000) + b"\x1b" + struct.pack(">I", 32) + bytes(32)
    packet = bytes([0xC6, len(body)]) + body
    wanted = hashlib.sha256(b"\x9b" + struct.pack(">I", len(body)) + body).hexdigest().upper()
    assert [key.fingerprint for key in openpgp.parse_keys(packet)] == [wanted]


BROKEN = {
    "nothing": ("", "it is empty"),
    "a web page": ("<html><body>404 Not Found</body></html>", "not made of OpenPGP packets"),
    "damaged armour": (made.GOOD.replace("mDME", "m?ME", 1), "its armour is damaged"),
    "cut off": (BINARY[:-20], "it ends in the middle of a packet"),
    "cut off in a length": (BINARY[:1], "it ends in the middle of a packet"),
    "a keybox": (b"\0\0\0 \1\1\0\2KBXf" + bytes(20), "it is a keybox of GnuPG"),
    "an old version": (b"\x98\x06\x03" + bytes(5), "it is a key of version 3"),
    "a signature alone": (b"\x88\x06\x04" + bytes(5), "it does not begin with a public key"),
    "a private key": (b"\xc5\x06\x04" + bytes(5), "it holds a private key"),
    "an armoured private key": (made.GOOD.replace("PUBLIC", "PRIVATE"), "it holds a private key"),
    "a private subkey behind it": (BINARY + b"\xc7\x06\x04" + bytes(5), "it holds a private key"),
    "in parts": (b"\xc6\xe0\x04", "in parts"),
    "of unknown length": (b"\x9b\x04", "of unknown length"),
}


@run_each(("data", "words"), BROKEN.values(), ids=list(BROKEN))
def test_what_is_no_public_key_is_refused(data: str | bytes, words: str) -> None:
    assert words in openpgp.judge(data, made.GOOD_FINGERPRINT)["problem"]


def test_another_key_is_refused_with_both_fingerprints() -> None:
    problem = openpgp.judge(made.OTHER, made.GOOD_FINGERPRINT)["problem"]
    assert problem == f"its fingerprint is {made.OTHER_FINGERPRINT}, expected is {made.GOOD_FINGERPRINT}"


def test_a_second_key_beside_the_right_one_is_refused() -> None:
    judged = openpgp.judge(made.GOOD + made.OTHER, made.GOOD_FINGERPRINT)
    assert judged["fingerprints"] == [made.GOOD_FINGERPRINT, made.OTHER_FINGERPRINT]
    assert judged["problem"].startswith(f"its fingerprint is {made.OTHER_FINGERPRINT}, expected")


def test_several_keys_are_good_if_each_is_named() -> None:
    spaced = " ".join(made.OTHER_FINGERPRINT[at : at + 4] for at in range(0, 40, 4)).lower()
    assert openpgp.judge(made.GOOD + made.OTHER, f"{made.GOOD_FINGERPRINT}, {spaced}")["problem"] == ""


def test_without_a_fingerprint_one_key_is_good_and_two_are_not() -> None:
    assert openpgp.judge(made.GOOD)["problem"] == ""
    assert "it holds 2 keys" in openpgp.judge(made.GOOD + made.OTHER)["problem"]


def test_a_revoked_key_is_refused() -> None:
    assert openpgp.judge(made.REVOKED, made.REVOKED_FINGERPRINT)["problem"].startswith("its owner has revoked")


def test_somebody_elses_revocation_revokes_nothing() -> None:
    foreign = openpgp.parse_keys(made.REVOKED)[0].raw
    signatures = foreign[foreign.index(b"\x88") :]  # the packets behind the key itself
    assert openpgp.judge(BINARY + signatures, made.GOOD_FINGERPRINT)["problem"] == ""


@pytest.mark.parametrize(
    ("days", "words"), [(-40, []), (-10, ["expires on 2020-01-02"]), (2, ["expired on 2020-01-02"])]
)
def test_expiry_is_a_warning(days: int, words: list[str]) -> None:
    end = openpgp.parse_keys(made.EXPIRED)[0].expires
    judged = openpgp.judge(made.EXPIRED, made.EXPIRED_FINGERPRINT, now=end + days * openpgp.DAY)
    assert judged["problem"] == ""
    assert [word in warning for word, warning in zip(words, judged["warnings"], strict=True)] == [True] * len(words)


def test_a_key_that_newer_apt_refuses_is_a_warning() -> None:
    assert "SHA-1" in openpgp.judge(made.SHA1, made.SHA1_FINGERPRINT)["warnings"][0]
    assert openpgp.judge(made.GOOD)["warnings"] == []


def test_armour_of_several_keys() -> None:
    both = made.GOOD + made.OTHER
    assert openpgp.armour_keys(both).count("BEGIN") == 1
    assert openpgp.armour_keys(both, each=True).count("BEGIN") == 2
    for text in (openpgp.armour_keys(both), openpgp.armour_keys(both, each=True)):
        assert openpgp.judge(text)["fingerprints"] == [made.GOOD_FINGERPRINT, made.OTHER_FINGERPRINT]


@pytest.mark.skipif(not shutil.which("gpg"), reason="gpg is not installed")
def test_gpg_reads_our_armour_and_finds_its_checksum_right(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir(mode=0o700)
    told = subprocess.run(
        ["gpg", "--homedir", tmp_path / "home", "--batch", "--show-keys", "--with-colons"],
        input=openpgp.armour_keys(made.GOOD), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert made.GOOD_FINGERPRINT in told.stdout
    assert "CRC" not in told.stderr


def test_a_block_that_another_parser_would_read_is_refused() -> None:
    hidden = made.OTHER.replace("BLOCK-----\n", "BLOCK----- \n", 1)
    assert hidden != made.OTHER
    assert "armour is damaged" in openpgp.judge(hidden + made.GOOD, made.GOOD_FINGERPRINT)["problem"]


def test_keys_of_rpms_database_are_told_by_their_whole_fingerprint() -> None:
    text = base64.b64encode(made.OTHER.encode()).decode()
    lines = [f"@rpmkey 46c74768-1 {text}", "@rpmkey 46c74768-2 bm9uZQ==", "@rpmkey 46c74768-3 ", "@machine x86_64"]
    assert openpgp.replace_rpm_keys("\n".join(lines)).splitlines() == [
        f"@rpmkey {made.OTHER_FINGERPRINT.lower()}-1",
        "@rpmkey 46c74768-2",
        "@rpmkey 46c74768-3 ",
        "@machine x86_64",
    ]


def test_a_key_that_is_missing_of_several() -> None:
    both = f"{made.GOOD_FINGERPRINT},{made.OTHER_FINGERPRINT}"
    assert openpgp.judge(made.GOOD, both)["problem"].endswith(f"lacks {made.OTHER_FINGERPRINT}")
