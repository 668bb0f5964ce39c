"""The role nvidia_driver: what it says of a build that failed, and that it says nothing of one that did not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import here
from tests.probe import published

pytestmark = pytest.mark.install

PREBUILD = Path(__file__).parents[1] / "roles/nvidia_driver/tasks/install/prebuild.yml"


def test_a_missing_compiler_is_told_by_its_package(tmp_path: Path) -> None:
    tasks = yaml.safe_load(PREBUILD.read_text(encoding="utf-8"))
    (judge,) = (task for task in tasks if "ansible.builtin.assert" in task)
    log = published("dkms-no-gxx-el9", "dkms-make-log").text

    def asked(text: str, status: int) -> dict[str, Any]:
        answer = {"rc": status, "stdout": text, "stdout_lines": text.splitlines()}
        return {**judge, "vars": {**judge["vars"], "__nvidia_driver_prebuild": answer}}

    tried = [
        {
            "block": [asked(text, status)],
            "rescue": [{"ansible.builtin.debug": {"msg": "{{ ansible_failed_result.msg }}"}}],
        }
        for text, status in (("/pack", 0), (log, 1), ("nv.c:1: error: no such member", 1))
    ]
    given = {
        "host_family": "redhat",
        "__nvidia_driver_version": "570.124.06",
        "__nvidia_driver_flavour": "open",
    }
    done = here.play(tmp_path, {"vars": given, "tasks": tried})
    assert done.returncode == 0, done.stdout + done.stderr
    told = " ".join(done.stdout.split())
    assert told.count("could not be built; the driver that was there is untouched") >= 2
    assert "Fix: install gcc-c++, and apply again" in told
    assert "Fix: another version (gpuprov catalog drivers)" in told
