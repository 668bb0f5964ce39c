"""The role nvidia_driver after a step that failed: what comes back, and what is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import here

pytestmark = pytest.mark.install
REASON = "NVIDIA's installer failed"
BUILT = "usr/share/nvidia-current-dkms/nvidia-current-535.261.03.dkms.tar.gz"


ROLE = here.ROLES / "nvidia_driver/tasks"


def test_a_step_that_fails_leaves_the_old_driver_loaded_and_nothing_built_aside(tmp_path: Path) -> None:
    """Parts of the tasks are files of the role: here two of the test's own, the second of which fails."""
    here.moved(tmp_path, "/run/gpuprov")
    pack = tmp_path / BUILT
    for folder in (tmp_path / "run/gpuprov", pack.parent, tmp_path / "tasks/install"):
        folder.mkdir(parents=True)
    pack.touch()
    (tmp_path / "run/gpuprov/unloaded").write_text("nvidia_uvm\nnvidia\n")
    here.program(tmp_path, "modprobe", f'echo "$@" >> {tmp_path}/loaded\n')
    needed: dict[str, Any] = {"before": {}, "packages": {}, "after": {}}
    given = {
        "gpuprov_services": [],
        "__nvidia_driver_aside": {"pack": str(pack)},
        "gpuprov_judged": {"desired": {"nvidia_driver": {"tasks": needed}}},
    }
    (tmp_path / "tasks/install/before.yml").write_text("- ansible.builtin.debug: {msg: first}\n")
    (tmp_path / "tasks/install/packages.yml").write_text(f'- ansible.builtin.fail: {{msg: "{REASON}"}}\n')
    (tmp_path / "tasks/install.yml").write_text((ROLE / "install.yml").read_text())
    done = here.play(tmp_path, {"vars": given, "tasks": [{"ansible.builtin.include_tasks": "tasks/install.yml"}]})
    told = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 2, told
    assert f'"msg": "{REASON}"' in told
    assert "rescued=1" in told
    assert (tmp_path / "loaded").read_text() == "-a nvidia nvidia_uvm\n"
    assert not (tmp_path / "run/gpuprov/unloaded").exists()
    assert not pack.exists()


def write_with(path: Path, name: str, command: list[str]) -> None:
    """Write a file of the role in which a command stands for a step of this name, on the hosts that need it."""
    name_of_file = str(path).rpartition("/tasks/")[2]
    tasks = yaml.safe_load((ROLE / name_of_file).read_text())
    block = tasks[0].get("block", tasks)
    (task,) = [one for one in block if one.get("gpuprov_step", {}).get("task") == name]
    del task["gpuprov_step"]
    task |= {
        "ansible.builtin.command": {"argv": command},
        "when": f"'{name}' in gpuprov_judged.desired.nvidia_driver.tasks",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(tasks))


def test_a_build_host_packs_before_another_host_installs(tmp_path: Path) -> None:
    """Also where the other comes first in the inventory, and has nothing to do before."""
    tasks = tmp_path / "roles/driver/tasks"
    write_with(tasks / "install.yml", "modules", ["sleep", "1"])
    write_with(tasks / "install/after.yml", "pack", ["touch", f"{tmp_path}/packed"])
    (tasks / "install/build_host.yml").write_text(
        f"- ansible.builtin.command: {{argv: [test, -e, {tmp_path}/packed]}}\n"
    )
    keys = {"builder": ["modules", "after", "pack"], "served": ["after", "brought"]}
    (tmp_path / "host_vars").mkdir()
    parts: dict[str, Any] = {"runfile": {}, "forget": {}, "leave": {"repository": {}}}
    for host, each in keys.items():
        driver = {**parts, "tasks": {key: {} for key in each}}
        judged = {
            "gpuprov_judged": {"desired": {"nvidia_driver": driver}},
            "gpuprov_services": [],
            "host_platform": "debian12",
        }
        (tmp_path / f"host_vars/{host}.yml").write_text(json.dumps(judged))
    included = {"ansible.builtin.include_role": {"name": "driver", "tasks_from": "install"}}
    done = here.play(tmp_path, {"tasks": [included]}, inventory="served,builder")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "packed").exists()
