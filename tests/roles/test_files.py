"""Roles on this machine, with a systemctl that only notes what it is asked: their files, units and programs come in one
task each."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuprov.render.carried import role_files
from tests import here

pytestmark = pytest.mark.install
SYSTEMCTL = """case "$*" in
*UnitFileState*old.service*) printf 'Id=old.service\\nLoadState=loaded\\nActiveState=active\\nUnitFileState=enabled\\n' ;;
*is-enabled*) exit 1 ;;
*"show -p LoadState"*) echo loaded ;;
*is-active*) exit 3 ;;
*) echo "$*" >> {folder}/asked ;;
esac
"""


def desired(place: Path) -> dict[str, dict[str, Any]]:
    """What a judge could have worked out for these roles, below a folder of the test's."""
    return {
        "cgpu": {
            "program": {f"{place}/cgpu.py": "cgpu.py"},
            "files": {f"{place}/cgpu.conf": "x\n"},
            "units": {},
            "absent": [f"{place}/cgpu.sh"],
        },
        "kernel": {
            "program": {f"{place}/governor.py": "governor.py"},
            "units": {},
            "files": {f"{place}/modules.conf": "ib_umad\n"},
            "absent": [],
            "off": [],
            "reboot": "",
        },
        "rdma": {
            "program": {f"{place}/soft.py": "soft.py"},
            "files": {},
            "units": {f"{place}/soft.service": "[Service]\nExecStart=@PYTHON@ -m rdma.soft\n"},
            "absent": [f"{place}/old.conf"],
            "off": ["old.service"],
            "tasks": {},
        },
        "gpudirect_rdma": {
            "files": {f"{place}/peer.service": "[Unit]\n"},
            "problem": "",
            "off": [],
            "absent": [],
            "on": ["peer.service"],
            "reboot": "",
        },
    }


def play(tmp_path: Path, judged: dict[str, dict[str, Any]]) -> Any:
    here.program(tmp_path, "systemctl", SYSTEMCTL.format(folder=tmp_path))
    given = {"gpuprov_judged": {"desired": judged}}
    for name in judged:  # with what it has from gpuprov/host_code, as a rendered project has it
        for path, file in role_files(name).items():
            (tmp_path / "roles" / name / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, tmp_path / "roles" / name / path)
    roles = [{"ansible.builtin.include_role": {"name": name, "tasks_from": "configure"}} for name in judged]
    return here.play(tmp_path, {"vars": given, "tasks": roles}, extra={"ansible_facts": {}})


def test_what_was_worked_out_is_there_and_a_second_run_changes_nothing(tmp_path: Path) -> None:
    place = tmp_path / "host"
    place.mkdir()
    for name in ("old.conf", "cgpu.sh"):
        (place / name).write_text("x\n")
    judged = desired(place)
    done = play(tmp_path, judged)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(path.name for path in place.iterdir()) == sorted(
        ["cgpu.py", "cgpu.conf", "governor.py", "modules.conf", "soft.py", "soft.service", "peer.service"]
    )
    for role, name in (("cgpu", "cgpu.py"), ("kernel", "governor.py"), ("rdma", "soft.py")):
        assert (place / name).read_bytes() == role_files(role)[f"files/{name}"].read_bytes()
    assert f"ExecStart={sys.executable} -m" in (place / "soft.service").read_text()
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked.index("disable -- old.service") < asked.index("stop -- old.service")
    assert "enable -- peer.service" in asked


def test_a_host_that_was_found_unfit_gets_nothing(tmp_path: Path) -> None:
    place = tmp_path / "host"
    wanted = {"gpudirect_rdma": {**desired(place)["gpudirect_rdma"], "problem": "no module loads. Fix: build one"}}
    done = play(tmp_path, wanted)
    assert done.returncode != 0
    assert "no module loads. Fix: build one" in done.stdout
    assert not place.exists()
