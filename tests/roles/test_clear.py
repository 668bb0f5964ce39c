"""What killed runs left in Ansible's folder on a host goes, and nothing that another host may be using."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from gpuprov.core import assets
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
