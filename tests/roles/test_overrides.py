"""What a site sets for one host counts on that host: how old package lists may be, how long to wait for another's
package manager."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import yaml

from tests import here

pytestmark = [pytest.mark.install, pytest.mark.skipif(not Path("/usr/bin/dpkg").exists(), reason="apt's hosts")]
SITE = yaml.safe_load((here.ROLES.parent / "playbooks" / "site.yml").read_text(encoding="utf-8"))
LISTS = "/var/lib/apt/lists"
AGE = 5_000


def test_each_host_has_its_own_age_of_package_lists_and_its_own_patience(tmp_path: Path) -> None:
    here.program(tmp_path, "apt-get", f'echo "$@" >> {tmp_path}/asked\n')
    here.program(tmp_path, "dpkg", "exit 0\n")
    lists = here.moved(tmp_path, LISTS) / LISTS.lstrip("/")
    lists.mkdir(parents=True)
    (lists / "site_Packages").write_text("")
    os.utime(lists, (time.time() - AGE,) * 2)
    given = {
        "host_capabilities": ["dcgm"],
        "gpuprov_catalog": {"packaged": ["dcgm"]},
        "host_package_lists_max_age": f"{{{{ {{'gpu1': {AGE - 1000}, 'gpu2': {AGE + 1000}}}[inventory_hostname] }}}}",
        "host_package_lock_timeout": "{{ {'gpu1': 7, 'gpu2': 900}[inventory_hostname] }}",
    }
    task = {"ansible.builtin.include_role": {"name": "host", "tasks_from": "assert"}}
    one = {"module_defaults": SITE[1]["module_defaults"], "vars": given, "tasks": [task]}
    done = here.play(tmp_path, one, inventory="gpu1,gpu2,")
    assert done.returncode == 0, done.stdout + done.stderr
    asked = (tmp_path / "asked").read_text().splitlines()
    assert sorted(asked) == [
        "-qq -o APT::Update::Error-Mode=any update",
        "-qq -o DPkg::Lock::Timeout=7 check",
        "-qq -o DPkg::Lock::Timeout=900 check",
    ]
