"""Modules signed anew: a signature is replaced, never added, and compression stays as it was."""

from __future__ import annotations

import gzip
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuprov.host_code.driver import dkms, signing
from gpuprov.host_code.driver.dkms import Failed

BODY = b"\x7fELF the module's own bytes" * 9


def appended(body: bytes, signature: bytes) -> bytes:
    """A module with a signature, as the kernel's sign-file writes it (include/linux/module_signature.h)."""
    return body + signature + struct.pack(">BBBBB3xI", 0, 0, 2, 0, 0, len(signature)) + b"~Module signature appended~\n"


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Programs of the host that are stand-ins, first on the path."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def made(name: str, script: str) -> None:
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)

    return made


def test_a_signature_is_taken_off() -> None:
    assert signing.strip_signature(appended(BODY, b"s" * 700)) == BODY
    assert signing.strip_signature(BODY) == BODY
    assert signing.strip_signature(appended(appended(BODY, b"one"), b"two")) == appended(BODY, b"one")


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
def test_a_module_is_signed_anew_in_place(tools: Callable[[str, str], None], tmp_path: Path, packed: bool) -> None:
    tools("kmodsign", 'printf "%s %s %s" "$1" "$2" "$3" >> "$4"')
    file = tmp_path / f"nvidia.ko{'.gz' if packed else ''}"
    content = appended(BODY, b"old")
    file.write_bytes(gzip.compress(content) if packed else content)
    signing.sign(str(file), "no-such-kernel", "the.key", "the.crt")
    found = gzip.decompress(file.read_bytes()) if packed else file.read_bytes()
    assert found == BODY + b"sha256 the.key the.crt"
    assert [one.name for one in tmp_path.iterdir() if one.is_file()] == [file.name]


def test_a_signer_that_fails_leaves_the_module_as_it_was(tools: Callable[[str, str], None], tmp_path: Path) -> None:
    tools("kmodsign", "echo no such key >&2; exit 1")
    file = tmp_path / "nvidia.ko"
    file.write_bytes(BODY)
    with pytest.raises(Failed, match="no such key"):
        signing.sign(str(file), "no-such-kernel", "the.key", "the.crt")
    assert file.read_bytes() == BODY
    assert [one.name for one in tmp_path.iterdir() if one.is_file()] == [file.name]


def test_no_program_that_signs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Failed, match=r"sign-file is not there, nor is kmodsign"):
        signing.find_signer("no-such-kernel")


Tools = Callable[[str, str], None]


@pytest.fixture
def built(tmp_path: Path, tools: Tools, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two modules that DKMS has built, the second signed with the wanted key, and both installed; programs note what
    they do."""
    for name in ("TREE", "KERNELS"):
        monkeypatch.setattr(dkms, name, str(tmp_path / name.lower()))
    for folder in (tmp_path / "tree/nvidia/580.1/k1/x86_64/module", tmp_path / "kernels/k1/updates/dkms"):
        folder.mkdir(parents=True)
        (folder / "nvidia.ko").write_bytes(BODY + b"BAD")
        (folder / "nvidia-uvm.ko").write_bytes(BODY + b"KEY")
    tools("modinfo", 'grep -q KEY "$3" && echo 0A:1B; true')
    tools("kmodsign", f'echo "$4" >> {tmp_path}/asked; printf KEY >> "$4"')
    installs = "cp $STATE/tree/nvidia/580.1/k1/x86_64/module/* $STATE/kernels/k1/updates/dkms/"
    tools("dkms", f'echo "$*" >> {tmp_path}/asked; {installs}')
    monkeypatch.setenv("STATE", str(tmp_path))
    return tmp_path


def sign(kernel: str = "k1") -> list[str]:
    return signing.sign_all("580.1", "a1b", "the.key", "the.crt", [kernel])


def test_what_another_key_signed_is_signed_anew_and_installed_once(built: Path) -> None:
    assert sign() == ["k1: nvidia.ko"]
    asked = (built / "asked").read_text().splitlines()
    assert asked[0].endswith("/module/nvidia.ko.gpuprov")
    assert asked[1:] == ["install --force -m nvidia -v 580.1 -k k1"]
    assert sign() == [], "a second run changes nothing"
    assert sign("other") == []


def test_modules_that_a_killed_run_signed_and_did_not_install_are_installed(built: Path) -> None:
    (built / "tree/nvidia/580.1/k1/x86_64/module/nvidia.ko").write_bytes(BODY + b"KEY")
    assert sign() == ["k1: nvidia.ko"]
    assert (built / "asked").read_text() == "install --force -m nvidia -v 580.1 -k k1\n"


def test_what_cannot_be_signed_is_told_with_its_kernel(built: Path, tools: Tools) -> None:
    tools("kmodsign", "echo no such key >&2; exit 1")
    with pytest.raises(Failed, match=r"kernel k1: .*no such key"):
        sign()


def test_the_serial_number_is_what_modinfo_says(tools: Callable[[str, str], None], tmp_path: Path) -> None:
    tools("modinfo", 'printf "0A:1B:\\n\\t\\t2C\\n"')
    assert signing.read_serial(str(tmp_path)) == "a1b2c"
    tools("modinfo", "exit 1")
    with pytest.raises(Failed):
        signing.read_serial(str(tmp_path))
