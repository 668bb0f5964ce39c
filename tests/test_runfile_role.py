"""The role beside NVIDIA's .run file: the installer's options, what is wanted anew, what comes back after a failure."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuprov.probe.signing import CERTIFICATE_FILE, KEY_FILE
from tests import here

pytestmark = pytest.mark.install

ROOT = Path(__file__).parent.parent
GIVEN: dict[str, Any] = {
    "ansible_facts": {"kernel": "6.1.0-47-amd64", "distribution": "Debian"},
    "gpuprov_capabilities": ["nvidia_driver"],
    "host_capabilities": ["nvidia_driver"],
    "gpuprov_catalog": {"signing": {"key_file": KEY_FILE, "certificate_file": CERTIFICATE_FILE}},
    "nvidia_driver_source": "runfile",
    "__nvidia_driver_kernels": [["kernel", "6.1.0-47-amd64", "1", "1"]],
}


EXTRA = ("ansible_facts", "ansible_failed_result")


def play(folder: Path, tasks: list[dict[str, Any]], **given: object) -> tuple[str, int]:
    """What Ansible says of the tasks on this machine, in one line, and its exit status."""
    known = {**GIVEN, **given}
    extra = {name: known[name] for name in EXTRA if name in known}
    done = here.play(folder, {"vars": known, "tasks": tasks}, extra=extra)
    return " ".join((done.stdout + done.stderr).split()), done.returncode


def variables(role: str) -> dict[str, Any]:
    return {"name": "Read", "ansible.builtin.include_vars": {"file": str(ROOT / "roles" / role / "vars/main.yml")}}


def shown(name: str, **more: object) -> dict[str, Any]:
    return {
        "name": "Show",
        "ansible.builtin.debug": {"msg": f"({{{{ [{name}] | flatten | join(' ') }}}})"},
        "vars": more,
    }


def test_the_installers_options(tmp_path: Path) -> None:
    def options(branch: str, flavour: str, *, secure: bool = False) -> dict[str, Any]:
        return shown(
            "__nvidia_driver_runfile_options",
            __nvidia_driver_decision={"branch": branch, "flavour": flavour},
            __nvidia_driver_secure=secure,
            nvidia_driver_signing={"key_file": "/site.key"},
        )

    tasks = [
        variables("nvidia_driver"),
        options("535", "open"),
        options("535", "proprietary", secure=True),
        options("580", "open", secure=True),
    ]
    told, status = play(tmp_path, tasks)
    assert status == 0, told
    first = "--silent --dkms --no-x-check --no-nouveau-check --kernel-name=6.1.0-47-amd64"
    signs = f"--module-signing-secret-key={KEY_FILE} --module-signing-public-key={CERTIFICATE_FILE}"
    running = "--allow-installation-with-running-driver --skip-module-load"
    assert f"({first} --kernel-module-build-directory=kernel-open)" in told, told
    assert f"({first} {signs})" in told, "it loads its modules for a trial: without a signature the kernel refuses them"
    assert f"({first} --kernel-module-type=open {running})" in told


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


@pytest.mark.parametrize(
    ("version", "sha256", "loaded", "wanted", "reload"),
    [
        ("535.261.03", "ab", "535.261.03", False, False),
        ("535.261.03", "cd", "535.261.03", True, True),
    ],
    ids=["again", "another file of the version"],
)
def test_no_installer_runs_under_a_loaded_driver(
    tmp_path: Path, version: str, sha256: str, loaded: str, *, wanted: bool, reload: bool
) -> None:
    (tmp_path / "filter_plugins").mkdir()
    for name in ("shared/reload.py", "shared/package_lists.py"):
        shutil.copy(ROOT / "gpuprov" / name, tmp_path / "filter_plugins")
    tasks = yaml.safe_load((ROOT / "roles/nvidia_driver/tasks/runfile/assert.yml").read_text(encoding="utf-8"))
    sorting = next(
        task for task in tasks if "__nvidia_driver_runfile_wanted" in task.get("ansible.builtin.set_fact", {})
    )
    facts: dict[str, Any] = {
        "__nvidia_driver_recorded_run": {
            "stdout_lines": [f"record|1.0-5 ({version})", f'ours|{{"sha256": "{sha256}"}}']
        },
        "__nvidia_driver_decision": {"version": "535.261.03", "flavour": "proprietary"},
        "__nvidia_driver_names": {"dkms": ["dkms"], "headers": ["linux-headers-{kernel}"]},
        "__nvidia_driver_loaded": loaded,
        "__nvidia_driver_loaded_flavour": "proprietary" if loaded else "",
        "__nvidia_driver_parameters": [],
        "nvidia_driver_runfile": {"sha256": "AB"},
        "nvidia_driver_module_parameters": {},
        "__nvidia_driver_on_host": {"installed": {"dkms": "3"}, "index": {}},
    }
    told, status = play(tmp_path, [sorting, shown("__nvidia_driver_runfile_wanted, __nvidia_driver_reload")], **facts)
    assert status == 0, told
    assert f"({wanted} {reload})" in told, told


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
