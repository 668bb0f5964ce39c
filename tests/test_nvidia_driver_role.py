"""The role nvidia_driver after a step that failed: what comes back, and what is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import here

pytestmark = pytest.mark.install
REASON = "NVIDIA's installer failed"
BUILT = "usr/share/nvidia-current-dkms/nvidia-current-535.261.03.dkms.tar.gz"


@pytest.mark.parametrize("steps", [["unload", "runfile"], ["aside", "packages"]])
def test_a_step_that_fails_leaves_the_old_driver_loaded_and_nothing_built_aside(
    tmp_path: Path, steps: list[str]
) -> None:
    """The steps are files of the role: here two of the test's own, the second of which fails."""
    here.moved(tmp_path, "/run/gpuprov")
    pack = tmp_path / BUILT
    for folder in (tmp_path / "run/gpuprov", pack.parent):
        folder.mkdir(parents=True)
    pack.touch()
    (tmp_path / "run/gpuprov/unloaded").write_text("nvidia_uvm\nnvidia\n")
    here.program(tmp_path, "modprobe", f'echo "$@" >> {tmp_path}/loaded\n')
    given = {
        "host_gpu_services": [],
        "__nvidia_driver_aside": {"pack": str(pack)},
        "gpuprov_judged": {"desired": {"nvidia_driver": {"installing": steps}}},
    }
    tasks = tmp_path / "tasks" / "install"
    tasks.mkdir(parents=True)
    (tasks / f"{steps[0]}.yml").write_text("- ansible.builtin.debug: {msg: first}\n")
    (tasks / f"{steps[1]}.yml").write_text(f'- ansible.builtin.fail: {{msg: "{REASON}"}}\n')
    role = here.ROLES / "nvidia_driver/tasks"
    for name in ("install.yml", "failed.yml"):
        (tasks.parent / name).write_text((role / name).read_text())
    done = here.play(tmp_path, {"vars": given, "tasks": [{"ansible.builtin.include_tasks": "tasks/install.yml"}]})
    told = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 2, told
    assert f'"msg": "{REASON}"' in told
    assert "rescued=1" in told
    assert (tmp_path / "loaded").read_text() == "-a nvidia nvidia_uvm\n"
    assert not (tmp_path / "run/gpuprov/unloaded").exists()
    assert not pack.exists()
