"""What a host keeps of its checkpoints is read, or it is an error: never a checkpoint that is not one."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from gpuprov.facts.probes.base import Facts, Output, ProbeFailed
from gpuprov.facts.probes.host.checkpoints import CHECKPOINTS


def run(root: Path, path: str) -> Output:
    script = CHECKPOINTS.script.replace("/var/lib/gpuprov", str(root))
    done = subprocess.run(
        [str(shutil.which("sh")), "-c", script], env={"PATH": path}, capture_output=True, text=True, check=False
    )
    return Output(done.stdout, done.returncode, done.stderr)


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoints" / "a1"
    folder.mkdir(parents=True)
    (folder / "checkpoint.json").write_text(json.dumps({"run": "a1", "at": "2026-01-01T00:00:00Z", "spec": {}}) + "\n")
    (tmp_path / "checkpoints" / "last.json").write_text('{"run": "a1"}\n')
    return tmp_path


def test_what_is_kept_is_read(kept: Path) -> None:
    found = Facts({CHECKPOINTS.name: run(kept, "/usr/bin:/bin")}).get(CHECKPOINTS)
    assert [one.run for one in found.all] == ["a1"]
    assert found.last == found.all[0]
    assert (found.target, found.half_way, found.damaged) == ("", (), 0)


def test_a_host_without_the_program_that_reads_them_has_no_damaged_one(kept: Path, tmp_path: Path) -> None:
    with pytest.raises(ProbeFailed, match="head"):
        Facts({CHECKPOINTS.name: run(kept, str(tmp_path))}).get(CHECKPOINTS)


def test_a_host_that_keeps_none(tmp_path: Path) -> None:
    found = Facts({CHECKPOINTS.name: run(tmp_path, "/usr/bin:/bin")}).get(CHECKPOINTS)
    assert (found.all, found.last, found.damaged) == ((), None, 0)
