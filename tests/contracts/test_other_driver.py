"""No role's packages bypass the judge of other drivers: all are tried in the first act, and only the driver's own are
exempt."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from gpuprov.capabilities import CAPABILITIES
from gpuprov.catalog.distributions import list_managed
from gpuprov.catalog.drivers.any import group_patterns_by_family
from gpuprov.host_code.packages import other_driver
from tests.catalog.driver_packages import list_driver_packages
from tests.rows import run_each

ROOT = Path(__file__).parents[2]
DEFAULT = "{{ (gpuprov_judged | default({})).driver | default({}) }}"


def transactions(name: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the tasks of a role that install packages, or try to."""

    def below(value: Any) -> Iterator[dict[str, Any]]:
        if isinstance(value, dict):
            task = value.get("gpuprov_packages") or {}
            if {"install", "capability"} & set(task) and task.get("action") not in ("files", "hold"):
                yield task
            for item in value.values():
                yield from below(item)
        elif isinstance(value, list):
            for item in value:
                yield from below(item)

    for path in sorted((ROOT / "roles" / name / "tasks").rglob("*.yml")):
        for task in below(yaml.safe_load(path.read_text(encoding="utf-8"))):
            yield path.relative_to(ROOT / "roles" / name / "tasks"), task


@run_each("name", [one.name for one in CAPABILITIES if one.packages])
def test_what_a_role_installs_is_judged_in_the_first_act(name: str) -> None:
    found = list(transactions(name))
    tried = {
        task.get("install") or task["capability"]
        for path, task in found
        if task.get("action") in ("try", "judge") and path.parts[0] == "assert.yml"
    }
    assert tried, f"roles/{name}/tasks/assert.yml tries nothing, and {[str(path) for path, _ in found]} install"


@run_each("name", [one.name for one in CAPABILITIES if one.packages])
def test_only_the_drivers_own_packages_are_exempt(name: str) -> None:
    exempt = [str(path) for path, task in transactions(name) if "driver" in task]
    assert bool(exempt) == (name == "nvidia_driver"), exempt


def test_every_act_and_every_role_by_itself_says_what_is_of_a_driver() -> None:
    plays = yaml.safe_load((ROOT / "playbooks" / "site.yml").read_text(encoding="utf-8"))
    acts = [play["module_defaults"] for play in plays if play["hosts"] != "localhost" and "module_defaults" in play]
    assert len(acts) >= 4
    assert {act["gpuprov_packages"]["driver"] for act in acts} == {DEFAULT}
    (alone,) = yaml.safe_load((ROOT / "roles" / "host" / "tasks" / "alone.yml").read_text(encoding="utf-8"))
    defaults = [task["module_defaults"] for task in alone["block"] if "module_defaults" in task]
    assert [one["gpuprov_packages"]["driver"] for one in defaults] == [DEFAULT]


@run_each("entry", list_managed(), ids=lambda one: str(one.key))
def test_every_package_that_the_catalogue_calls_a_drivers_is_one_on_its_family(entry: Any) -> None:
    names = group_patterns_by_family()[entry.family]
    asked = {name for found in list_driver_packages()[entry.key].values() for name in found["ask"]}
    missed = {name for name in asked if not re.fullmatch(names["driver"], name)}
    beside = {name for name in missed if "xnvctrl" in name.casefold() or "nscq" in name}
    assert missed == beside


@run_each(
    "name",
    ["libnvidia-container1", "libnvidia-container-tools", "nvidia-container-toolkit", "nvidia-container-toolkit-base",
     "datacenter-gpu-manager-4-core", "datacenter-gpu-manager-4-cuda12", "cuda-toolkit-12-8",
     "nvidia-fabricmanager-580",
     "libnvidia-nscq-580", "nvidia-imex", "nvidia-fs-dkms", "gdrdrv-dkms", "libgdrapi", "libxnvctrl0",
     "nvidia-cuda-toolkit",
     "nvidia-fabric-manager", "nvlsm", "libnvsdm", "doca-ofed", "libcufile-12-8", "nvidia-gds-12-8"],
)  # fmt: skip
def test_what_stands_beside_any_driver_is_no_drivers(name: str) -> None:
    assert not [family for family, names in group_patterns_by_family().items() if re.fullmatch(names["driver"], name)]


def test_the_package_that_asks_is_one_of_a_drivers() -> None:
    assert re.fullmatch(group_patterns_by_family()["debian"]["driver"], other_driver.CLEANUP)
