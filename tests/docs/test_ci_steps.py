"""The steps of the page on fleets, for CI: run as they stand, on stub hosts, beside the names that its GitLab example
counts on."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.jobs import stub

pytestmark = pytest.mark.install
PAGE = (Path(__file__).parents[2] / "docs/how-to/fleet.md").read_text(encoding="utf-8")
[STEPS] = re.findall(r"```sh\n(set -eu\n.*?)```", PAGE, re.S)


def steps(folder: Path, run: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    told = {**os.environ, "PATH": path, "HOME": str(folder), "RUN": run, "ACT": "verify"}
    return subprocess.run(["sh", "-c", STEPS], cwd=folder, env=told, capture_output=True, text=True, check=False)


def test_the_steps_are_run_as_they_stand(tmp_path: Path) -> None:
    ssh = stub.transport(tmp_path / "stub")
    hosts = {name: {"ansible_host": name} for name in [f"gpu{n:03}" for n in range(55)] + ["bad1"]}
    known = {"ansible_ssh_executable": str(ssh), "gpuprov": stub.SPEC}
    (tmp_path / "inventory.yaml").write_text(json.dumps({"all": {"vars": known, "hosts": hosts}}))
    first = steps(tmp_path, "41")
    assert first.returncode == 1, first
    assert "jobs/job-0002.json ended with 1: its results say why" in first.stderr
    assert "bad1" in first.stdout
    assert (tmp_path / "fleet.html").is_file()
    assert (tmp_path / "fleet.xml").is_file()
    assert "jobs/job-$(printf %04d $CI_NODE_INDEX).json" in PAGE, "which is the second one's name"
    before = stub.calls(tmp_path, "gpu000")
    again = steps(tmp_path, "41")
    assert (again.returncode, stub.calls(tmp_path, "gpu000")) == (1, before), "a green host is not asked again"
    other = steps(tmp_path, "42")
    assert (other.returncode, stub.calls(tmp_path, "gpu000")) == (1, before + 1), "by another run it is"
