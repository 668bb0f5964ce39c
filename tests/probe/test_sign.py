"""The program of the role that signs modules anew: a signature is replaced, never added, and compression stays as it was."""

from __future__ import annotations

import gzip
import importlib.util
import os
import struct
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

FILE = Path(__file__).parents[2] / "roles" / "nvidia_driver" / "files" / "sign.py"
BODY = b"\x7fELF the module's own bytes" * 9


def appended(body: bytes, signature: bytes) -> bytes:
    """A module with a signature, as the kernel's sign-file writes it (include/linux/module_signature.h)."""
    return body + signature + struct.pack(">BBBBB3xI", 0, 0, 2, 0, 0, len(signature)) + b"~Module signature appended~\n"


@pytest.fixture
def program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sign", FILE)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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


def test_a_signature_is_taken_off(program: ModuleType) -> None:
    assert program.unsigned(appended(BODY, b"s" * 700)) == BODY
    assert program.unsigned(BODY) == BODY
    assert program.unsigned(appended(appended(BODY, b"one"), b"two")) == appended(BODY, b"one")


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
def test_a_module_is_signed_anew_in_place(
    program: ModuleType, tools: Callable[[str, str], None], tmp_path: Path, packed: bool
) -> None:
    tools("kmodsign", 'printf "%s %s %s" "$1" "$2" "$3" >> "$4"')
    file = tmp_path / f"nvidia.ko{'.gz' if packed else ''}"
    content = appended(BODY, b"old")
    file.write_bytes(gzip.compress(content) if packed else content)
    program.sign(str(file), "no-such-kernel", "the.key", "the.crt")
    found = gzip.decompress(file.read_bytes()) if packed else file.read_bytes()
    assert found == BODY + b"sha256 the.key the.crt"
    assert [one.name for one in tmp_path.iterdir() if one.is_file()] == [file.name]


def test_a_signer_that_fails_leaves_the_module_as_it_was(
    program: ModuleType, tools: Callable[[str, str], None], tmp_path: Path
) -> None:
    tools("kmodsign", "echo no such key >&2; exit 1")
    file = tmp_path / "nvidia.ko"
    file.write_bytes(BODY)
    with pytest.raises(RuntimeError, match="no such key"):
        program.sign(str(file), "no-such-kernel", "the.key", "the.crt")
    assert file.read_bytes() == BODY
    assert [one.name for one in tmp_path.iterdir() if one.is_file()] == [file.name]


def test_no_program_that_signs(program: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match=r"sign-file is not there, nor is kmodsign"):
        program.signer("no-such-kernel")


def test_kernels_without_modules_of_dkms_are_left_alone(program: ModuleType) -> None:
    assert program.main("0.0", "abc", "k", "c", "no-such-kernel") == {"signed": [], "problem": ""}


def test_the_serial_number_is_what_modinfo_says(
    program: ModuleType, tools: Callable[[str, str], None], tmp_path: Path
) -> None:
    tools("modinfo", 'printf "0A:1B:\\n\\t\\t2C\\n"')
    assert program.serial(str(tmp_path)) == "a1b2c"
    tools("modinfo", "exit 1")
    with pytest.raises(RuntimeError):
        program.serial(str(tmp_path))
