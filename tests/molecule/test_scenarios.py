"""The scenarios and what they share: short, complete, and asking only for what exists."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from gpuprov.explain import all_checks
from gpuprov.fleet.specs import load_fleet
from gpuprov.simulate import faults
from gpuprov.simulate.description import Description, convert
from gpuprov.simulate.host import check_name
from gpuprov.verify.evaluate import MOMENTS

pytestmark = pytest.mark.install

ROOT = Path(__file__).parents[2]
SHARED = ROOT / "molecule" / "shared"
SCENARIOS = sorted(path for path in (ROOT / "molecule").iterdir() if path.is_dir() and path != SHARED)
CONFIG: dict[str, Any] = yaml.safe_load((ROOT / ".config" / "molecule" / "config.yml").read_text(encoding="utf-8"))
VARIABLES = {"gpuprov", "simulated_host", "simulated_before", "simulated_reboots", "simulated_faults"}
every_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda path: path.name)


@cache
def hosts(scenario: Path) -> dict[str, dict[str, Any]]:
    """The variables of each host of a scenario, as ansible-inventory tells them."""
    command = [
        str(Path(sys.executable).with_name("ansible-inventory")),
        "-i",
        str(scenario / "inventory.yaml"),
        "--list",
    ]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, dict[str, Any]] = yaml.safe_load(told.stdout)["_meta"]["hostvars"]
    return found


def description(variables: dict[str, Any]) -> Description:
    return convert(variables.get("simulated_host", {}), "simulated_host")


def test_both_kinds_of_host_have_a_scenario() -> None:
    assert {"default", "boot"} <= {path.name for path in SCENARIOS}
    kinds = {path.name: {description(host).kind for host in hosts(path).values()} for path in SCENARIOS}
    assert kinds["default"] == {"container"}
    assert kinds["boot"] == {"machine"}


@every_scenario
def test_a_scenario_is_two_short_files(scenario: Path) -> None:
    assert {path.name for path in scenario.iterdir()} == {"molecule.yml", "inventory.yaml"}
    assert len((scenario / "molecule.yml").read_text(encoding="utf-8").splitlines()) <= 10
    assert len((scenario / "inventory.yaml").read_text(encoding="utf-8").splitlines()) <= 40


@every_scenario
def test_its_hosts_are_described_and_its_spec_is_valid(scenario: Path) -> None:
    pairs = load_fleet([str(scenario / "inventory.yaml")], None, cache=False).pairs
    found = hosts(scenario)
    assert {raw.name for raw, _ in pairs} == set(found)
    for raw, spec in pairs:
        check_name(raw.name)
        assert raw.name.startswith("molecule-"), ".ci/run takes down what it left by this prefix"
        described = description(found[raw.name])
        if spec.gpu:
            assert described.gpu, f"{raw.name}: the spec asks for GPUs, the simulated host has none"
            assert (described.gpu.model, described.gpu.count) == (spec.gpu.model, spec.gpu.count)
        assert {name for name in found[raw.name] if not name.startswith("ansible_")} <= VARIABLES


def test_host_names_are_used_once() -> None:
    names = [name for scenario in SCENARIOS for name in hosts(scenario)]
    assert len(names) == len(set(names)), names


@every_scenario
def test_its_faults_exist_and_verify_has_their_checks(scenario: Path) -> None:
    checks = {check.id for check in all_checks() if check.moment in MOMENTS}
    for variables in hosts(scenario).values():
        for planted in variables.get("simulated_faults", []):
            if isinstance(planted, dict) and "script" in planted:
                assert set(planted) == {"script", "check"}
                assert planted["check"] in checks
                continue
            name = planted["fault"] if isinstance(planted, dict) else planted
            faults.check(msgspec.structs.replace(description(variables), faults=(name,)))
            fault = faults.find(name.partition("=")[0])
            if isinstance(planted, dict):
                assert set(planted) == {"fault", "change"}
                assert fault.moment != "verify", f"{fault.name} is found by verify: its name is enough"
            else:
                assert fault.moment == "verify", f"{fault.name} is found by an apply with work to do: give it a change"
                assert fault.caught_by in checks


def test_a_test_goes_through_every_step_and_always_destroys() -> None:
    steps = ["create", "prepare", "converge", "idempotence", "side_effect", "verify", "destroy"]
    assert CONFIG["scenario"]["test_sequence"] == ["destroy", *steps]  # what a killed run left goes first
    assert CONFIG["scenario"]["destroy_sequence"] == ["destroy"]
    playbooks = CONFIG["ansible"]["playbooks"]
    assert set(playbooks) == {*steps, "cleanup"} - {"idempotence"}  # idempotence is converge again
    assert "cleanup" not in CONFIG["scenario"]["test_sequence"], "molecule runs it after a failure: it shows the logs"


def test_every_playbook_is_there_and_parses() -> None:
    files = [(ROOT / "molecule" / "any" / name).resolve() for name in CONFIG["ansible"]["playbooks"].values()]
    assert {path.parent for path in files} == {SHARED}
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "--syntax-check", *map(str, files)]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
