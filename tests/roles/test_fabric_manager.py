"""The role fabric_manager on this machine, with programs that only note what they were asked: when GPUs are reset."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from tests import here
from tests.rows import run_each

pytestmark = pytest.mark.install

SYSTEMCTL = """case "$*" in
*ControlGroup*) sed -n 's/^0:://p' /proc/self/cgroup ;;
*is-active*nvidia-fabricmanager*) [ -e {folder}/started ] ;;
*is-active*) exit 3 ;;
restart*) echo "start $3" >> {folder}/asked; touch {folder}/started ;;
esac
"""


WANTED = {
    "name": "nvidia-fabricmanager.service",
    "state": "alive",
    "process": "nv-fabricmanager",
    "files": ["/no/such/file"],
}
AGAIN = ["nvidia-smi", "-r"]


@run_each(
    ("runtime", "reset", "told"),
    [
        ({"reset_before": [], "reset_after": AGAIN}, 1, ["start nvidia-fabricmanager.service", "reset -r"]),
        ({"reset_before": AGAIN, "reset_after": []}, 0, ["reset -r", "start nvidia-fabricmanager.service"]),
        ({"reset_before": [], "reset_after": []}, 0, ["start nvidia-fabricmanager.service"]),
    ],
    ids=["after the start, as with NVLink 5", "before it, as with boards that register", "not at all"],
)
def test_gpus_are_reset_when_it_was_decided(
    tmp_path: Path, runtime: dict[str, list[str]], reset: int, told: list[str]
) -> None:
    """A reset that fails is a warning: the daemon is started all the same."""
    here.program(tmp_path, "systemctl", SYSTEMCTL.format(folder=tmp_path))
    here.program(tmp_path, "nvidia-smi", f"echo reset $1 >> {tmp_path}/asked; echo In use by a client; exit {reset}\n")
    (tmp_path / "nv-fabricmanager").symlink_to("/bin/sleep")
    commands = {key: {"argv": argv} for key, argv in runtime.items() if argv}
    handed = {"unit": WANTED, "stop": {}, "start": {}, **commands}
    given = {
        "gpuprov_judged": {"desired": {"fabric_manager": {"tasks": handed}}},
        "gpuprov_services": ["*"],
        "host_gpu_services": ["*"],  # whatever else on this machine holds a GPU is not a user of it
    }
    tasks = yaml.safe_load((here.ROLES / "fabric_manager/tasks/service.yml").read_text(encoding="utf-8"))
    start = tasks[[task["name"] for task in tasks].index("Start the daemon") :]
    with subprocess.Popen([str(tmp_path / "nv-fabricmanager"), "60"]) as process:
        try:
            done = here.play(tmp_path, {"vars": given, "tasks": start}, extra={"ansible_facts": {}})
        finally:
            process.kill()
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "asked").read_text(encoding="utf-8").splitlines() == told
    assert ("In use by a client" in done.stdout + done.stderr) == bool(reset)
