"""A worker's files, by names that a server has told."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuprov.core.errors import GpuprovError
from gpuprov.rollout.temporal.files import Files
from tests.rows import run_each


@run_each("name", ["", "..", "../x", "/etc/x", "a/b", "a\n", "\x1b[2J", "a\0b", "x" * 5000])
def test_a_server_leads_to_no_other_place(tmp_path: Path, name: str) -> None:
    files = Files(tmp_path / "temporal")
    for place in (files.place, files.fleet, files.policy):
        with pytest.raises(GpuprovError):
            place(name)
    assert files.place("r-1") == tmp_path / "temporal/r-1"
    assert files.fleet("a" * 64).parent == tmp_path / "temporal"
