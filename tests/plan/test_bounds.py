"""A host prints without end while another is worked on: Ansible's process of its task has a limit, and the other host
is well."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gpuprov.plan import bounds

pytestmark = pytest.mark.install
PLAY = """- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.ping: {}
"""
RUN = f"""import sys
from gpuprov.plan import bounds
bounds.MOST = {64 << 20}
bounds.bound_memory()
from ansible.cli.playbook import main
main(["ansible-playbook", "-i", "inventory.yml", "play.yml"])
"""


def test_it_costs_its_own_task(tmp_path: Path) -> None:
    endless = tmp_path / "python3"
    endless.write_text("#!/bin/sh\ncat >/dev/null\nexec cat /dev/zero\n", encoding="utf-8")
    endless.chmod(0o755)
    pythons = {"gpu1": str(endless), "gpu2": sys.executable}
    hosts = {name: {"ansible_connection": "local", "ansible_python_interpreter": one} for name, one in pythons.items()}
    (tmp_path / "inventory.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts}}), encoding="utf-8")
    (tmp_path / "play.yml").write_text(PLAY, encoding="utf-8")
    (tmp_path / "ansible.cfg").write_text("[connection]\npipelining = true\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", RUN], cwd=tmp_path, env={**os.environ, "ANSIBLE_CONFIG": str(tmp_path / "ansible.cfg")},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2, done
    assert "ok: [gpu2]" in done.stdout, done
    assert "fatal: [gpu1]: FAILED!" in done.stdout, done


def test_a_lower_limit_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, tuple[int, int]]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda kind, given: told.append((kind, given)))
    monkeypatch.setattr(bounds, "_parse_data", lambda: 1000)
    for soft, hard, wanted in ((-1, -1, 1500), (1200, -1, 1200), (-1, 1300, 1300), (9000, 9000, 1500)):
        monkeypatch.setattr(resource, "getrlimit", lambda _kind, found=(soft, hard): found)
        bounds._set_limit(500)
        assert told.pop() == (resource.RLIMIT_DATA, (wanted, hard))
