"""Two machines of the stand-in NVML, for the tests of the program."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mig_host.on_host import A100, H100, Machine, program


@pytest.fixture
def h100(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(program, "LOCK", str(tmp_path / "lock"))
    return Machine(tmp_path, H100)


@pytest.fixture
def a100(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(program, "LOCK", str(tmp_path / "lock"))
    return Machine(tmp_path, A100)
