"""The first task of every apply, on this machine: a Python that Ansible does not work with is refused in one clear line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.here import play, program

pytestmark = pytest.mark.install


@pytest.mark.skipif(os.geteuid() != 0, reason="the host must be worked on as root")
def test_an_old_python_is_refused_with_the_way_out(tmp_path: Path) -> None:
    program(tmp_path, "python3.6", "echo 3.6\n")
    python = tmp_path / "python3.6"
    tasks = [{"ansible.builtin.include_role": {"name": "host", "tasks_from": "reach"}}]
    done = play(tmp_path, {"tasks": tasks}, extra={"ansible_python_interpreter": str(python)})
    told = " ".join(done.stdout.split())
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"gpu1: {python} is Python 3.6, and Ansible " in told
    assert "Way out: ansible_python_interpreter: /usr/bin/python3." in told or "dnf install python3.12" in told
