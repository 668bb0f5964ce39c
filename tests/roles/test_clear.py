"""What killed runs left in Ansible's folder on a host goes, and nothing that another host may be using."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from gpuprov.core import assets
from gpuprov.play import Host, run_step
from tests.rows import run_each

CLEAR = assets.root() / "roles" / "host" / "files" / "clear.sh"


@run_each(("system", "left"), [("xfs", ["new"]), ("ext2/ext3", ["new"]), ("nfs", ["gpu", "new"]), ("", ["gpu", "new"])])
def test_a_home_on_a_network_is_other_hosts_too(tmp_path: Path, system: str, left: list[str]) -> None:
    here = tmp_path / ".ansible" / "tmp"
    for folder in (
        "gpuprov/ansible-tmp-gpu",
        "gpuprov/ansible-tmp-old",
        "gpuprov-plan/ansible-tmp-new",
        "gpuprov-plan/ansible-tmp-old",
    ):
        (here / folder / "module").mkdir(parents=True)
        if folder.endswith("old"):
            os.utime(here / folder, times=(time.time() - 86_500,) * 2)
    (tmp_path / "stat").write_text(f"#!/bin/sh\n[ -n '{system}' ] && echo '{system}'\n")
    (tmp_path / "stat").chmod(0o755)
    env = {"HOME": str(tmp_path), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["sh", CLEAR], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert sorted(path.name.removeprefix("ansible-tmp-") for path in here.glob("*/*")) == left


@run_each(("lock", "first"), [({"guard": "/g/7"}, ["/g/7", "--", "/bin/sh"]), ({}, ["/bin/sh"])])
def test_it_goes_through_the_guard_of_the_lock(lock: dict[str, Any], first: list[str]) -> None:
    ran: list[str] = []
    host = SimpleNamespace(variables={"host_lock": lock}, template=lambda value: value, login=ran.append)
    assert run_step("leftovers", cast("Host", host), {}) == {"changed": False}
    assert shlex.split(ran[0]) == [*first, "-c", CLEAR.read_text(encoding="utf-8")]
