"""A tiny project of its own roles, applied for real to `ansible_connection: local`; hosts are as their state file says.

Run as a program (`fleet.py FOLDER HOST...`) it applies to those hosts; tests interrupt it.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from gpuprov import apply as applying
from gpuprov.apply import execution
from gpuprov.capabilities.base import Change
from gpuprov.core import assets
from gpuprov.facts.probes.base import Facts, Output
from gpuprov.host_code import lock
from gpuprov.plan import host_lock, planning
from gpuprov.plan.read import Pair, Reading
from gpuprov.render.variables import ROLES
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import HostSpec, RawHost
from gpuprov.verify.evaluate import MOMENTS, Result

SITE = """
- name: Act 1, everything
  hosts: all
  gather_facts: false
  tasks:
    - name: Run each capability
      ansible.builtin.include_role: {name: "{{ gpuprov_capability }}"}
      loop: "{{ gpuprov_only[inventory_hostname] }}"
      loop_control: {loop_var: gpuprov_capability}
"""
KERNEL = """
- name: Take the lock
  ansible.builtin.command:
    argv: ["{{ ansible_python_interpreter }}", "-IS", LOCK]
    stdin: "{{ {'action': 'take', 'owner': gpuprov_run} | to_json }}"
  changed_when: false
  when: inventory_hostname.startswith('slow')
- name: Write the state
  ansible.builtin.copy: {content: "as wanted\\n", dest: "STATE/{{ inventory_hostname }}", mode: "0644"}
- name: Refuse
  ansible.builtin.assert: {that: "not inventory_hostname.startswith('bad')", fail_msg: "this host is bad. Fix: none"}
- name: Take long
  ansible.builtin.command: sleep 41.5
  when: inventory_hostname.startswith('slow')
"""
HOST = Path(__file__).parents[2] / "roles" / "host"
SECRET = "correct-horse-battery"


def pair(name: str) -> Pair:
    connection = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "ansible_become": False,
        "ansible_become_password": SECRET,
    }
    return RawHost(name=name, connection=connection), HostSpec(name=name, capabilities={"kernel": Kernel()})


@contextmanager
def project(folder: Path, site: str = SITE) -> Iterator[Path]:
    """Renders from `folder` instead of gpuprov's roles, and reads hosts from state files; yields the state's folder."""
    state = folder / "state"
    state.mkdir(exist_ok=True)
    for role in ROLES:
        (folder / "roles" / role / "tasks").mkdir(parents=True, exist_ok=True)
    shutil.copytree(HOST / "files", folder / "roles" / "host" / "files", dirs_exist_ok=True)
    shutil.copytree(HOST.parents[1] / "plugins", folder / "plugins", symlinks=True, dirs_exist_ok=True)
    program = folder / "lock.py"
    text = host_lock.program().replace("/run/gpuprov", str(folder / "run"))
    program.write_text(text.replace("/var/lib/gpuprov", str(folder / "lib")))
    kernel = KERNEL.replace("STATE", str(state)).replace("LOCK", str(program))
    (folder / "roles" / "kernel" / "tasks" / "main.yml").write_text(kernel)
    (folder / "playbooks" / "acts").mkdir(parents=True, exist_ok=True)
    (folder / "playbooks" / "acts" / "capabilities.yml").write_text("[]")
    (folder / "playbooks" / "site.yml").write_text(site)

    def read(pairs: Sequence[Pair], moments: Any = MOMENTS, each: Any = None, **_given: Any) -> dict[str, Reading]:
        found = {raw.name: _reading(raw.name, state) for raw, _ in pairs}
        for name, one in found.items() if each else ():
            each(name, one)
        return found

    with (
        # Not the home's, which an apply of another test beside this one clears.
        mock.patch.dict(os.environ, {"ANSIBLE_REMOTE_TEMP": str(folder / "remote")}),
        mock.patch.object(assets, "root", return_value=folder),
        mock.patch.object(lock, "__file__", str(program)),
        mock.patch.object(execution, "read", read),
        mock.patch.object(planning, "read", read),
    ):
        yield state


def _reading(name: str, state: Path) -> Reading:
    good = (state / name).exists() and not name.startswith(("wrong", "waits"))
    result = Result(
        host=name,
        capability="kernel",
        check="kernel.state",
        fields=(),
        moment="now",
        status="pass" if good else "fail",
        expected="matches",
        found="matches" if good else "missing",
        evidence="",
        fix="" if good else "apply",
        changes=() if good else (Change(kind="file", name="/state", before="missing", after="matches"),),
        reboot="the old one runs" if name.startswith("waits") and (state / name).exists() else "",
    )
    return Reading(Facts({"receipt": Output(""), "apply_marker": Output(""), "reboot_reasons": Output("")}), (result,))


if __name__ == "__main__":
    place = Path(sys.argv[1])
    with project(place):
        run = applying.apply([pair(name) for name in sys.argv[2:]], applying.Options(yes=True, log_dir=place / "log"))
        print(applying.as_text(run), flush=True)
        sys.exit(run.exit_code)
