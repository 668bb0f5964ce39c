"""Tasks that name a capability alone: which options their modules get, and that a host with nothing to do is not
asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuprov.play.arguments import file_arguments, find_desired, package_arguments, task_arguments
from tests.here import play
from tests.rows import run_each

NOWHERE = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
PACKAGES: dict[str, Any] = {
    "of": "the toolkit",
    "fix": "another version",
    "install": ["a=1"],
    "remove": [],
    "hold": ["a"],
    "release": [],
    "later": {},
    "pin": {"version": "535", "patterns": ["a*"]},
}


@run_each(
    ("action", "options"),
    [
        ("try", {"action": "try", "install": ["a=1"]}),
        ("judge", {"action": "judge", "install": ["a=1"]}),
        ("install", {"action": "settle", "install": ["a=1"]}),
        ("hold", {"action": "settle", "hold": ["a"]}),
        ("settle", {"action": "settle", "install": ["a=1"], "hold": ["a"]}),
    ],
)
def test_an_action_gets_its_part_of_the_transaction(action: str, options: dict[str, Any]) -> None:
    every = {"of": "the toolkit", "fix": "another version", "pin": {"version": "535", "patterns": ["a*"]}}
    assert package_arguments(PACKAGES, action) == {**every, **options}


@run_each(
    ("changed", "actions"),
    [
        ({"install": []}, ["hold", "settle"]),
        ({"hold": []}, ["try", "install", "settle"]),
        ({"install": [], "remove": ["b"], "hold": []}, ["try", "install", "settle"]),
        ({"install": [], "hold": [], "release": ["a"]}, ["hold", "settle"]),
        ({"install": [], "hold": []}, []),
    ],
)
def test_an_action_without_anything_to_do_is_none(changed: dict[str, Any], actions: list[str]) -> None:
    values = {**PACKAGES, **changed}
    assert [one for one in ("try", "install", "hold", "settle") if package_arguments(values, one)] == actions


def test_files_and_units_have_the_names_of_the_module() -> None:
    values = {"files": {"/a": "b"}, "program": {"/p": "p.py"}, "on": ["a.service"], "off": ["b.service"], "absent": []}
    assert file_arguments({**values, "run": [{"name": "a.service"}]}, "x") == {
        "files": {"/a": "b"},
        "role_files": {"/p": "p.py"},
        "enabled": ["a.service"],
        "disabled": ["b.service"],
    }


def test_a_part_is_found_by_its_name_and_a_wrong_one_is_an_error() -> None:
    judged = {"gpuprov_judged": {"desired": {"rdma": {"ofed": {"hold": ["a"]}}}}}
    assert find_desired(judged, "rdma.ofed") == {"hold": ["a"]}
    with pytest.raises(KeyError, match="mig"):
        find_desired(judged, "mig")


def test_a_reason_for_a_reboot_is_given_also_to_take_one_back() -> None:
    assert file_arguments({"files": {}, "reboot": ""}, "kernel") == {"reboot": {"kernel": ""}}
    assert file_arguments({"problem": "no compiler"}, "kernel") == {"problem": "no compiler"}


def test_a_task_without_an_entry_is_not_needed_and_of_a_list_it_does_the_item_of_its_loop() -> None:
    tasks = {"cdi": {"directory": "/x"}, "unit": [{"name": "a"}, {"name": "b"}], "stop": {}}
    known = {"gpuprov_judged": {"desired": {"mig": {"tasks": tasks}}}}
    assert task_arguments(known, "mig", "cdi") == {"directory": "/x"}
    assert task_arguments(known, "mig", "stop") == {}
    assert task_arguments(known, "mig", "drain") is None
    assert task_arguments({**known, "item": {"name": "b"}}, "mig", "unit") == {"name": "b"}


@pytest.mark.install
def test_a_task_that_is_not_needed_is_skipped_without_its_host(tmp_path: Path) -> None:
    desired = {"x": {"tasks": {"say": {"argv": ["echo", "{{ no template }}"]}}, "repository": {}, "install": []}}
    tasks: list[dict[str, Any]] = [
        {"gpuprov_step": {"name": "cdi", "capability": "x"}, "vars": NOWHERE},
        {"gpuprov_unit": {"capability": "x"}, "vars": NOWHERE},
        {"gpuprov_repository": {"capability": "x"}, "vars": NOWHERE},
        {"gpuprov_packages": {"capability": "x", "action": "files", "task": "download"}, "vars": NOWHERE},
        {"gpuprov_step": {"name": "command", "capability": "x", "task": "say"}, "register": "said"},
        {"ansible.builtin.debug": {"msg": "it said {{ said.stdout | length }}"}},
        {
            "gpuprov_step": {"name": "command", "capability": "x", "task": "say", "arguments": {"argv": ["false"]}},
            "ignore_errors": True,
        },
    ]
    done = play(tmp_path, {"tasks": tasks}, extra={"gpuprov_judged": {"desired": desired}}, check=False)
    printed = done.stdout + done.stderr
    assert done.returncode == 0, printed
    assert "skipped=4" in printed
    assert "it said 18" in printed, "a text of a host is not a template"
    assert "ignored=1" in printed, "what the task itself gives comes before what is desired"


@pytest.mark.install
def test_through_ansible(tmp_path: Path) -> None:
    """Defaults of the module hold also where the options come from what is desired; with nothing to do, no host is
    needed."""
    file = tmp_path / "a"
    desired = {
        "x": {"files": {str(file): "{{ no template }}\n"}, "on": []},
        "y": {"files": {}, "install": [], "of": "y"},
    }
    tasks: list[dict[str, Any]] = [
        {"gpuprov_files": {"capability": "x"}, "register": "written"},
        {"ansible.builtin.debug": {"msg": "wrote {{ written.paths }}"}},
        {"gpuprov_files": {"capability": "y"}, "vars": NOWHERE},
        {"gpuprov_packages": {"capability": "y"}, "vars": NOWHERE},
        {"gpuprov_packages": {"capability": "z", "action": "try"}, "ignore_errors": True},
    ]
    judged = {"desired": {**desired, "z": {"install": ["no-such-package"], "of": "z"}}}
    done = play(
        tmp_path,
        {"tasks": tasks, "module_defaults": {"gpuprov_packages": {"lock_timeout": -1}}},
        extra={"gpuprov_judged": judged},
        check=False,
    )
    printed = done.stdout + done.stderr
    assert done.returncode == 0, printed
    assert file.read_text() == "{{ no template }}\n"
    assert f"wrote ['{file}']" in printed
    assert "no-such-package" in printed
