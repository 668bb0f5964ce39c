"""A role by itself, in a play of a site's own: what it does before and after its stages. Modules are stand-ins that
note names."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.here import PLUGINS, ROLES

pytestmark = pytest.mark.install

STAND_IN = """
import json, os
from pathlib import Path
from ansible.plugins.action import ActionBase

ANSWERS = {
    "gpuprov_reach": {"python": "/usr/bin/python3", "environment": {"LC_ALL": "C.UTF-8"}, "platform": "debian12"},
    "gpuprov_lock": {"run": {"run": "1"}},
}


class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        name, asked = Path(__file__).stem, dict(self._task.args)
        if name == "gpuprov_step":
            name, asked = asked["name"], asked.get("arguments", {})
        if name == "gpuprov_judge":
            asked.pop("judged", None)
        with open(os.environ["STATE"], "a") as file:
            file.write(json.dumps([name, asked.get("state") or asked.get("moment") or asked.get("action") or ""]) + "\\n")
        if name == os.environ.get("BREAKS"):
            return {"failed": True, "msg": "it broke"}
        if name == "gpuprov_judge":
            return {"changed": False, "desired": json.loads(os.environ["DESIRED"]), "changing": {}}
        return {"changed": False, **ANSWERS.get(name, {})}
"""
KEPT = "gpuprov_spec"
"""The one action that is as it is."""


def asked_of(role: str) -> dict[str, object]:
    """All that the tasks of a role take of what was worked out for it, empty."""
    found = re.findall(
        rf"desired\.{role}\.(\w+)", "".join(file.read_text() for file in (ROLES / role / "tasks").rglob("*.yml"))
    )
    return {key: [] for key in found}


def ran(
    folder: Path, spec: str, *roles: object, breaks: str = ""
) -> tuple[subprocess.CompletedProcess[str], list[list[str]]]:
    """A play with these roles on a host with this spec, and which modules were asked for what."""
    actions = folder / "actions"
    actions.mkdir()
    for module in (PLUGINS / "modules").glob("gpuprov_*.py"):
        text = STAND_IN
        if module.stem == KEPT:
            text = (PLUGINS / "action" / module.name).read_text()
            text = text.replace("Path(__file__).parents[1]", f"Path({str(PLUGINS)!r})")
        (actions / module.name).write_text(text)
    (folder / "inventory.yaml").write_text(f"all: {{hosts: {{gpu1: {{gpuprov: {spec}}}}}}}\n")
    (folder / "play.json").write_text(json.dumps([{"hosts": "all", "gather_facts": False, "roles": list(roles)}]))
    desired = {role: asked_of(role) for role in ("persistence", "nouveau", "kernel")}
    desired["kernel"]["unit"] = ""
    done = subprocess.run(
        [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "inventory.yaml", "-c", "local", "play.json"],
        cwd=folder,
        env={
            **os.environ,
            "ANSIBLE_ROLES_PATH": str(ROLES),
            "ANSIBLE_LIBRARY": str(PLUGINS / "modules"),
            "ANSIBLE_ACTION_PLUGINS": str(actions),
            "ANSIBLE_MODULE_UTILS": str(PLUGINS / "module_utils"),
            "ANSIBLE_NOCOLOR": "1",
            "STATE": str(folder / "asked"),
            "BREAKS": breaks,
            "DESIRED": json.dumps(desired),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    noted = (folder / "asked").read_text().splitlines() if (folder / "asked").exists() else []
    return done, [json.loads(line) for line in noted]


BEFORE = [["gpuprov_reach", ""], ["gpuprov_lock", "taken"]]
AFTER = [["gpuprov_receipt", "applied"], ["reason", ""], ["gpuprov_lock", "released"]]


def test_a_role_reaches_locks_judges_works_and_unlocks(tmp_path: Path) -> None:
    done, noted = ran(tmp_path, "{persistence: {}}", "persistence")
    assert done.returncode == 0, done.stdout
    assert noted == [
        *BEFORE,
        ["gpuprov_packages", "prepare"],
        ["gpuprov_judge", "preflight"],
        ["gpuprov_packages", "judge"],
        ["gpuprov_packages", "files"],
        ["gpuprov_receipt", "begun"],
        ["gpuprov_packages", "install"],
        ["gpuprov_judge", "now"],
        ["gpuprov_files", ""],
        ["gpuprov_unit", ""],
        *AFTER,
    ]


def test_what_a_role_asks_of_the_kernel_comes_with_it_and_roles_go_one_after_the_other(tmp_path: Path) -> None:
    done, noted = ran(tmp_path, "{}", "nouveau", {"role": "persistence", "vars": {"persistence_mode": "legacy"}})
    assert done.returncode == 0, done.stdout
    assert [one for one in noted if one[0] == "gpuprov_lock"] == [
        ["gpuprov_lock", "taken"],
        ["gpuprov_lock", "released"],
    ] * 3
    names = [name for name, _ in noted]
    assert names.index("running_kernel") < names.index("unload") < len(names) - names[::-1].index("gpuprov_unit")


def test_a_role_that_fails_gives_the_lock_back_and_stays_failed(tmp_path: Path) -> None:
    done, noted = ran(tmp_path, "{persistence: {}}", "persistence", breaks="gpuprov_files")
    assert done.returncode == 2, done.stdout
    assert noted[-2:] == [["clients", "started"], ["gpuprov_lock", "released"]]
    assert "it broke" in done.stdout


def test_a_lock_that_is_not_had_is_not_given_back(tmp_path: Path) -> None:
    done, noted = ran(tmp_path, "{persistence: {}}", "persistence", breaks="gpuprov_lock")
    assert done.returncode == 2, done.stdout
    assert noted == BEFORE


def test_a_host_whose_spec_leaves_the_role_out_is_refused_before_it_is_reached(tmp_path: Path) -> None:
    done, noted = ran(tmp_path, "{persistence: {}}", "nouveau")
    assert done.returncode == 2, done.stdout
    assert "the role nouveau is applied, and the spec of this host has no nouveau (it has: persistence)" in done.stdout
    assert noted == []
