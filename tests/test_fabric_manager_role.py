"""The role fabric_manager on this machine, with programs that only note what they were asked: when GPUs are reset."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests import here

pytestmark = pytest.mark.install

SYSTEMCTL = """case "$*" in
*ControlGroup*) sed -n 's/^0:://p' /proc/self/cgroup ;;
*is-active*nvidia-fabricmanager*) [ -e {folder}/started ] ;;
*is-active*) exit 3 ;;
restart*) echo "start $3" >> {folder}/asked; touch {folder}/started ;;
esac
"""


@pytest.mark.parametrize(
    ("mode", "generation", "reset", "told"),
    [
        ("shared-nvswitch", 4, 1, ["start nvidia-fabricmanager.service", "reset -r"]),
        ("bare-metal", 4, 0, ["start nvidia-fabricmanager.service"]),
    ],
)
def test_gpus_of_nvlink_5_are_reset_after_the_start(
    tmp_path: Path, mode: str, generation: int, reset: int, told: list[str]
) -> None:
    here.program(tmp_path, "systemctl", SYSTEMCTL.format(folder=tmp_path))
    here.program(tmp_path, "nvidia-smi", f"echo reset $1 >> {tmp_path}/asked; echo In use by a client; exit {reset}\n")
    (tmp_path / "nv-fabricmanager").symlink_to("/bin/sleep")
    files = {"imex_files": {"program": "", "config": "", "nodes": ""}, "configuration": "/no/such/file"}
    given = {
        "gpuprov_catalog": {"fabric_manager": files},
        "host_platform": "x",
        "gpuprov_services": ["*"],
        "host_gpu_services": ["*"],  # whatever else on this machine holds a GPU is no user of it
        "fabric_manager_imex": {"nodes": [], "service": "enabled"},
        "fabric_manager_fabric_mode": mode,
        "__fabric_manager_generation": generation,
    }
    role = {"ansible.builtin.include_role": {"name": "fabric_manager", "tasks_from": "service/daemon"}}
    with subprocess.Popen([str(tmp_path / "nv-fabricmanager"), "60"]) as process:
        try:
            done = here.play(tmp_path, {"vars": given, "tasks": [role]}, extra={"ansible_facts": {}})
        finally:
            process.kill()
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "asked").read_text(encoding="utf-8").splitlines() == told
    assert ("In use by a client" in done.stdout) == bool(reset)
