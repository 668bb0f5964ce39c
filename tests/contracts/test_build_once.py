"""nvidia_driver.build_host: what the tasks on a served host refuse, record and release."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import here
from tests.contracts.test_roles import ROOT, TASKS, tasks_of

DRIVER: dict[str, Any] = {
    "module": "nvidia-kernel-dkms",
    "packages": {"nvidia-kernel-dkms": "535.261.03-1"},
    "flavour": "proprietary",
    "kernels": ["6.1.0-47"],
    "served": True,
    "installed": "",
    "prebuilt": [],
}
BRING: dict[str, Any] = {
    "name": "Bring",
    "ansible.builtin.include_role": {"name": "nvidia_driver", "tasks_from": "prebuilt/bring"},
    "when": "inventory_hostname == 'served'",
}
PACKED = {"version": "535.261.03-1", "flavour": "proprietary", "sums": "ab", "sha256": "cd", "kernels": ["6.1.0-47"]}
VARS: dict[str, Any] = {
    "nvidia_driver_build_host": "builder",
    "nvidia_driver_build": "dkms",
    "nvidia_driver_hold": True,
    "__nvidia_driver_builder_ran": True,
}


def play(folder: Path, tasks: list[dict[str, Any]], known: dict[str, Any] | None = None, **more: object) -> str:
    """What ansible-playbook says of these tasks on a build host and a host that it serves, with this description in the cache."""
    if known is not None:
        (folder / "cache.json").write_text(json.dumps(known))
    places = {"cache": folder / "cache", "file": folder / "host" / "modules.deb"}
    extra = {f"__nvidia_driver_prebuilt_{key}": str(path) for key, path in places.items()}
    driver = DRIVER | {name: value for name, value in more.items() if not name.startswith("nvidia_driver_")}
    given = {name: value for name, value in more.items() if name not in driver}
    judged = {"gpuprov_judged": {"desired": {"nvidia_driver": driver}}}
    done = here.play(folder, {"vars": VARS | judged | given, "tasks": tasks}, inventory="builder,served", extra=extra)
    return f"{done.stdout}{done.stderr}"


def builder(action: dict[str, Any]) -> dict[str, Any]:
    """A task of the build host alone, whose failure is rescued as the driver's installation is."""
    after = {"name": "Give up", "ansible.builtin.fail": {"msg": "given up"}}
    task = {"name": "Build", "when": "inventory_hostname == 'builder'", **action}
    return {"name": "Install", "block": [task, BRING], "rescue": [after]}


FAILS = {"ansible.builtin.fail": {"msg": "no compiler"}}
GIVES = {"ansible.builtin.set_fact": {"__nvidia_driver_gave_out": True}}


@pytest.mark.install
def test_a_build_host_that_failed_gives_out_nothing_of_an_earlier_run(tmp_path: Path) -> None:
    told = play(tmp_path, [builder(FAILS)], PACKED)
    assert "builder failed in this run; nothing was installed on served" in told


@pytest.mark.install
@pytest.mark.parametrize(
    ("known", "reason"),
    [
        (PACKED | {"kernels": ["6.1.0-46"]}, "it builds for 6.1.0-46, and served can boot 6.1.0-47"),
        (PACKED | {"flavour": "open"}, "it has 535.261.03-1 (open), and served would get"),
        (PACKED | {"version": "535.247.01-1"}, "it has 535.247.01-1 (proprietary), and served would get"),
        ({}, "has packed no modules in this run"),
    ],
)
def test_what_lies_in_the_cache_is_judged_itself(tmp_path: Path, known: dict[str, Any], reason: str) -> None:
    assert reason in play(tmp_path, [builder(GIVES)], known)


@pytest.mark.install
def test_what_stands_for_the_dkms_package_is_not_brought_again(tmp_path: Path) -> None:
    """Also where another role has read the packages since: they have it under its own name."""
    own = "nvidia-kernel-dkms-prebuilt"
    show = {
        "name": "Show",
        "ansible.builtin.debug": {"msg": "again {{ __nvidia_driver_prebuilt_wanted | default('') }}"},
    }
    told = play(
        tmp_path,
        [builder(GIVES), show],
        PACKED | {"sums": ""},
        prebuilt=[own],
        installed="535.261.03-1",
    )
    assert '"msg": "again False"' in told, told


def test_what_is_known_of_packages_is_not_lost_where_a_task_is_skipped() -> None:
    """Ansible registers a task that is skipped, too."""
    for role in sorted({path.relative_to(ROOT).parts[1] for path in TASKS}):
        tasks = [task for path in TASKS if path.relative_to(ROOT).parts[1] == role for task in tasks_of(path)]
        reading = [task for task in tasks if (task.get("gpuprov_packages") or {}).get("action") == "read"]
        assert {task.get("register") for task in reading} <= {f"__{role}_on_host"}, role
        assert len(reading) < 2 or not [task["name"] for task in reading if "when" in task], role
