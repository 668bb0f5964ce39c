"""The process that becomes ansible-playbook: how often it looks whether a host has answered, and what it does once for all tasks."""

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
PARSING = """
from pathlib import Path
from ansible.executor import module_common
from ansible.module_utils import basic
def main(arguments):
    shared, other = Path(basic.__file__).read_bytes(), b"import os"
    print(*(module_common._compile_module_ast("x", one) is module_common._compile_module_ast("x", one) for one in (shared, other)))
"""
RUN = """
import sys, types
import ansible.cli
stand_in = types.ModuleType("ansible.cli.playbook")
exec({playbook!r}, stand_in.__dict__)
sys.modules["ansible.cli.playbook"] = stand_in
import os, runpy
sys.argv = ["child.py", sys.argv[1], str(os.getppid()), "site.yml"]
runpy.run_path({file!r}, run_name="__main__")
"""


def run(folder: Path, config: str, playbook: str = PLAYBOOK) -> str:
    (folder / "ansible.cfg").write_text(f"[defaults]\n{config}\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-P", "-c", RUN.format(playbook=playbook, file=child.__file__), str(folder / "pid")],
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


def test_what_every_module_imports_is_parsed_once_for_all_tasks(tmp_path: Path) -> None:
    assert run(tmp_path, "", PARSING) == "True False", "a module's own source is parsed when it is packed"
