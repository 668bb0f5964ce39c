"""Fixtures of several tests of simulated hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuprov.simulate.parts import nvml
from gpuprov.simulate.parts.base import File
from gpuprov.simulate.standins import driver as standins_driver


@pytest.fixture
def without_programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """NVIDIA's programs and the libraries are not fetched and not built: only their places count here."""
    for name in standins_driver.PROGRAMS:
        (tmp_path / name).write_bytes(b"#!/bin/true\n")
    monkeypatch.setattr(standins_driver, "_extracted", lambda: tmp_path)
    monkeypatch.setattr(standins_driver, "_hollow", lambda _name: b"library")
    monkeypatch.setattr(standins_driver, "configuration_library", lambda: b"library")
    monkeypatch.setattr(nvml, "package_files", lambda version: {f"/x.{version}": File(b"nvml")})
