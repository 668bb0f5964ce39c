"""What the driver's role takes out of the kernel, run where stand-ins answer for the host."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from gpuprov import assets


class Site:
    """A host below a folder: files, and programs that answer for it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.programs = root / "bin"
        self.programs.mkdir()

    def program(self, name: str, text: str) -> None:
        (self.programs / name).write_text(text.replace("ROOT", str(self.root)))
        (self.programs / name).chmod(0o755)

    def file(self, path: str, content: bytes | str = "") -> Path:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content if isinstance(content, bytes) else content.encode())
        return place

    def run(self, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        script = script.replace("/sys/", f"{self.root}/sys/")
        env = {**os.environ, "PATH": f"{self.programs}:/usr/bin:/bin"}
        return subprocess.run(
            ["sh", "-c", script, "program", *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=20,
            env=env,
        )


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_the_driver_leaves_with_what_stands_on_it(site: Site) -> None:
    """In the order in which they hold each other; without these, nvidia itself would stay in use."""
    tasks = yaml.safe_load((assets.root() / "roles/nvidia_driver/tasks/install/unload.yml").read_text(encoding="utf-8"))
    script = tasks[1]["ansible.builtin.shell"]
    site.program("rmmod", "#!/bin/sh\nrm -r ROOT/sys/module/$1\n")
    loaded = ["nvidia", "nvidia_uvm", "nvidia_peermem", "nv_peer_mem", "gdrdrv"]
    for name in loaded:
        site.file(f"sys/module/{name}/refcnt", "0")
    done = site.run(script)
    assert done.stdout.splitlines() == [
        f"unloaded {name}" for name in ("gdrdrv", "nv_peer_mem", "nvidia_peermem", "nvidia_uvm", "nvidia")
    ]
