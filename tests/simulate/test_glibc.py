"""Stand-ins are built on this machine and run on hosts with an older glibc: they need nothing newer than Debian 12
has."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from gpuprov.simulate import nvml_build
from gpuprov.simulate.repository import standins as repository_standins

DEBIAN_12 = (2, 36)
PARTS = Path(nvml_build.__file__).parent
NUMBERS = re.compile(r"\b(?:v?[fs]?scanf|strto[a-z]+|atoi|atol|atoll)\b(?=\s*\()")


def test_what_asks_for_gnu_c_reads_no_numbers() -> None:
    """From glibc 2.38 on they would be symbols of that version: https://sourceware.org/glibc/wiki/Release/2.38"""
    files = [file for file in PARTS.rglob("*.c") if "define _GNU_SOURCE" in file.read_text(encoding="utf-8")]
    on_hosts = {
        file.name: NUMBERS.findall(re.sub(r"/\*.*?\*/", "", file.read_text(encoding="utf-8"), flags=re.S))
        for file in files
    }
    on_hosts.pop("procfs.c", None)  # compiled on the host itself
    assert not {name: found for name, found in on_hosts.items() if found}
    assert "own_version.c" in on_hosts


@pytest.mark.install
def test_libraries_need_no_newer_glibc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not shutil.which("gcc"):
        pytest.skip("no gcc")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for library in (nvml_build.build().read_bytes(), repository_standins.configuration_library()):
        needed = {tuple(map(int, found)) for found in re.findall(rb"GLIBC_(\d+)\.(\d+)", library)}
        assert needed
        assert max(needed) <= DEBIAN_12
