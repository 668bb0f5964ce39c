"""The first task of every apply, on this machine: a Python that Ansible does not work with is refused in one clear line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PLAY = """\
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: host, tasks_from: reach}
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="the host must be worked on as root")
def test_an_old_python_is_refused_with_the_way_out(tmp_path: Path) -> None:
    python = tmp_path / "python3.6"
    python.write_text("#!/bin/sh\necho 3.6\n", encoding="utf-8")
    python.chmod(0o755)
    (tmp_path / "play.yml").write_text(PLAY, encoding="utf-8")
    ansible = Path(sys.executable).with_name("ansible-playbook")
    command = [str(ansible), "-i", "gpu1,", "-c", "local", "-e", f"ansible_python_interpreter={python}", "play.yml"]
    environment = {**os.environ, "ANSIBLE_ROLES_PATH": str(ROOT / "roles"), "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    told = " ".join(done.stdout.split())
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"gpu1: {python} is Python 3.6, and Ansible " in told
    assert "Way out: ansible_python_interpreter: /usr/bin/python3." in told or "dnf install python3.12" in told
