"""The role beside NVIDIA's .run file: what comes back after a failure, which modules are registered."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import here

pytestmark = pytest.mark.install

ROOT = Path(__file__).parent.parent
GIVEN: dict[str, Any] = {
    "ansible_facts": {"kernel": "6.1.0-47-amd64", "distribution": "Debian"},
    "gpuprov_capabilities": ["nvidia_driver"],
    "host_capabilities": ["nvidia_driver"],
    "nvidia_driver_source": "runfile",
}


EXTRA = ("ansible_facts", "ansible_failed_result")


def play(folder: Path, tasks: list[dict[str, Any]], **given: object) -> tuple[str, int]:
    """What Ansible says of the tasks on this machine, in one line, and its exit status."""
    known = {**GIVEN, **given}
    extra = {name: known[name] for name in EXTRA if name in known}
    done = here.play(folder, {"vars": known, "tasks": tasks}, extra=extra)
    return " ".join((done.stdout + done.stderr).split()), done.returncode


def test_a_failed_installer_leaves_the_old_driver_loaded(tmp_path: Path) -> None:
    (tmp_path / "modprobe").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/loaded\n')
    (tmp_path / "modprobe").chmod(0o755)
    facts = {
        "__nvidia_driver_unload": {"stdout_lines": ["unloaded nvidia_uvm", "unloaded nvidia"]},
        "ansible_failed_result": {"msg": "NVIDIA's installer failed"},
        "host_gpu_services": [],
    }
    told, status = play(
        tmp_path,
        [{"ansible.builtin.include_role": {"name": "nvidia_driver", "tasks_from": "install/failed"}}],
        **facts,
    )
    assert status == 2, told
    assert "NVIDIA's installer failed" in told
    assert (tmp_path / "loaded").read_text() == "-a nvidia nvidia_uvm\n"


@pytest.mark.parametrize(("registered", "told"), [(True, ""), (False, "installed for 6.1.0-47-amd64\n")])
def test_modules_that_dkms_does_not_know_are_registered(tmp_path: Path, *, registered: bool, told: str) -> None:
    status = "nvidia/580.95.05, 6.1.0-47-amd64, x86_64: installed" if registered else ""
    programs = {
        "modinfo": 'case $* in *license*) echo "Dual MIT/GPL" ;; *) echo 580.95.05 ;; esac',
        "dkms": f'[ "$1" != status ] || echo "{status}"; [ "$1" = status ] || echo "$*" >> {tmp_path}/asked',
    }
    for name, body in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "src/nvidia-580.95.05").mkdir(parents=True)
    (tmp_path / "src/nvidia-580.95.05/dkms.conf").touch()
    script = (ROOT / "roles/nvidia_driver/files/runfile_modules.sh").read_text().replace("/usr/src", f"{tmp_path}/src")
    argv = ["sh", "-c", script, "runfile_modules.sh", "580.95.05", "open", "6.1.0-47-amd64"]
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, told), done.stderr
    asked = (tmp_path / "asked").read_text() if (tmp_path / "asked").exists() else ""
    assert asked == ("" if registered else "install --force -m nvidia -v 580.95.05 -k 6.1.0-47-amd64\n")
