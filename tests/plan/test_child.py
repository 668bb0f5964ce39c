"""The process that becomes ansible-playbook: how often it looks whether a host has answered."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from gpuprov.plan import child

PLAYBOOK = """
from ansible import constants
def main(arguments):
    print(arguments, constants.DEFAULT_INTERNAL_POLL_INTERVAL)
"""
RUN = f"""
import sys, types
import ansible.cli
stand_in = types.ModuleType("ansible.cli.playbook")
exec({PLAYBOOK!r}, stand_in.__dict__)
sys.modules["ansible.cli.playbook"] = stand_in
import os, runpy
sys.argv = ["child.py", sys.argv[1], str(os.getppid()), "site.yml"]
runpy.run_path({child.__file__!r}, run_name="__main__")
"""


def run(folder: Path, config: str) -> str:
    (folder / "ansible.cfg").write_text(f"[defaults]\n{config}\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-P", "-c", RUN, str(folder / "pid")],
        env={**os.environ, "ANSIBLE_CONFIG": str(folder / "ansible.cfg")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (folder / "pid").read_text().isdigit()
    return done.stdout.strip()


def test_it_does_not_keep_a_core_busy_while_hosts_work(tmp_path: Path) -> None:
    assert run(tmp_path, "") == f"['ansible-playbook', 'site.yml'] {child.POLL}"


def test_what_the_users_ansible_cfg_says_stays(tmp_path: Path) -> None:
    assert run(tmp_path, "internal_poll_interval = 0.02") == "['ansible-playbook', 'site.yml'] 0.02"
