"""The role nvidia_driver after a step that failed: what comes back, and what is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpuprov.capabilities.nvidia_driver.steps import stages
from tests import here

pytestmark = pytest.mark.install
REASON = "NVIDIA's installer failed"
BUILT = "usr/share/nvidia-current-dkms/nvidia-current-535.261.03.dkms.tar.gz"


ROLE = here.ROLES / "nvidia_driver/tasks"


def test_a_step_that_fails_leaves_the_old_driver_loaded_and_nothing_built_aside(tmp_path: Path) -> None:
    """The stages are files of the role: here two of the test's own, the second of which fails."""
    here.moved(tmp_path, "/run/gpuprov")
    pack = tmp_path / BUILT
    for folder in (tmp_path / "run/gpuprov", pack.parent, tmp_path / "tasks/install"):
        folder.mkdir(parents=True)
    pack.touch()
    (tmp_path / "run/gpuprov/unloaded").write_text("nvidia_uvm\nnvidia\n")
    here.program(tmp_path, "modprobe", f'echo "$@" >> {tmp_path}/loaded\n')
    taken = {"before": ["unload"], "of": "test", "after": ["never"]}
    given = {
        "gpuprov_services": [],
        "__nvidia_driver_aside": {"pack": str(pack)},
        "gpuprov_judged": {"desired": {"nvidia_driver": {"stages": taken}}},
    }
    (tmp_path / "tasks/install/before.yml").write_text("- ansible.builtin.debug: {msg: first}\n")
    (tmp_path / "tasks/install/of_test.yml").write_text(f'- ansible.builtin.fail: {{msg: "{REASON}"}}\n')
    for name in ("install.yml", "failed.yml"):
        (tmp_path / "tasks" / name).write_text((ROLE / name).read_text())
    done = here.play(tmp_path, {"vars": given, "tasks": [{"ansible.builtin.include_tasks": "tasks/install.yml"}]})
    told = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 2, told
    assert f'"msg": "{REASON}"' in told
    assert "rescued=1" in told
    assert (tmp_path / "loaded").read_text() == "-a nvidia nvidia_uvm\n"
    assert not (tmp_path / "run/gpuprov/unloaded").exists()
    assert not pack.exists()


def test_a_build_host_packs_before_another_host_installs(tmp_path: Path) -> None:
    """Also where the other comes first in the inventory, and has nothing to do before."""
    tasks = tmp_path / "roles/stages/tasks"
    (tasks / "install").mkdir(parents=True)
    for name in ("install.yml", "install/after.yml"):
        (tasks / name).write_text((ROLE / name).read_text())
    texts = {
        "of_dkms": "- ansible.builtin.command: {argv: [sleep, '1']}\n",
        "pack": f"- ansible.builtin.command: {{argv: [touch, {tmp_path}/packed]}}\n",
        "prebuilt": f"- ansible.builtin.command: {{argv: [test, -e, {tmp_path}/packed]}}\n",
    }
    for name, text in texts.items():
        (tasks / f"install/{name}.yml").write_text(text)
    (tasks / "failed.yml").write_text("- ansible.builtin.fail: {msg: not packed yet}\n")
    steps = {"builder": ["packages", "dkms", "pack"], "served": ["prebuilt"]}
    (tmp_path / "host_vars").mkdir()
    for host, each in steps.items():
        driver = {"installing": each, "stages": stages(each)}
        judged = {"gpuprov_judged": {"desired": {"nvidia_driver": driver}}}
        (tmp_path / f"host_vars/{host}.yml").write_text(json.dumps(judged))
    included = {"ansible.builtin.include_role": {"name": "stages", "tasks_from": "install"}}
    done = here.play(tmp_path, {"tasks": [included]}, inventory="served,builder")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "packed").exists()
