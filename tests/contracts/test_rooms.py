"""Each name means the same in every room. A failure says which name is missing."""

from __future__ import annotations

from pathlib import Path

import msgspec

from gpuprov.capabilities import BY_NAME, CAPABILITIES
from gpuprov.explain import all_checks, fields
from gpuprov.fleet.specs import load_fleet
from tests.rows import run_each

ROOT = Path(__file__).parents[2]
NAMES = [capability.name for capability in CAPABILITIES]

DOORS = (
    "roles/{name}/meta/main.yml",
    "roles/{name}/meta/argument_specs.yml",
    "roles/{name}/tasks/main.yml",
    "playbooks/{name}.yml",
    "tests/capabilities/test_{name}.py",
)


def test_every_door_is_there() -> None:
    paths = [door.format(name=name) for name in NAMES for door in DOORS]
    missing = [path for path in paths if not (ROOT / path).is_file()]
    assert not missing, f"missing: {', '.join(missing)}; make docs writes all but the tests"


def test_the_module_has_the_capabilitys_name() -> None:
    folder = ROOT / "gpuprov" / "capabilities"
    found = {path.stem for path in folder.glob("*.py")} | {path.parent.name for path in folder.glob("*/__init__.py")}
    assert set(NAMES) <= found


def test_a_scenario_shows_it_or_tests_that_it_names() -> None:
    shown = {
        name
        for file in (ROOT / "molecule").glob("*/inventory.yaml")
        for _, spec in load_fleet([str(file)], None, cache=False).pairs
        for name in spec.capabilities
    }
    for capability in CAPABILITIES:
        if capability.name in shown or capability.name == "host":
            assert not capability.shown_by, f"{capability.name}: a scenario shows it"
        else:
            file = ROOT / (capability.shown_by or "nothing")
            assert file.is_file(), (
                f"{capability.name}: no host of molecule/*/inventory.yaml has it: add it to one, or name the tests that"
                " show it in the field shown_by of its Capability"
            )
            assert capability.name in file.read_text(encoding="utf-8"), file


def test_no_room_without_a_capability() -> None:
    houses = {"host"}
    assert {path.name for path in (ROOT / "roles").iterdir()} == {*NAMES, *houses}
    assert {path.stem for path in (ROOT / "playbooks").glob("*.yml")} == {*NAMES, "site"}


@run_each("name", list(BY_NAME))
def test_an_empty_block_takes_defaults(name: str) -> None:
    """`NAME: {}` is a whole block in every capability: the first fields of a block have defaults."""
    fragment = BY_NAME[name].fragment
    lacking = [field.name for field in msgspec.structs.fields(fragment) if field.required]
    assert not lacking, f"{name}: {{}} must be a whole block: give {', '.join(lacking)} a default in its fragment"


@run_each("name", list(BY_NAME))
def test_every_field_is_proved_or_excused(name: str) -> None:
    capability = BY_NAME[name]
    proved = {field for check in capability.checks if check.moment != "preflight" for field in check.fields}
    top = {field.path[1] for field in fields.fields(name)}
    assert proved <= top, f"{name}: checks prove fields that do not exist: {proved - top}"
    unproved = top - proved - set(capability.unproved)
    assert not unproved, f"{name}: no check proves {unproved}, and `unproved` does not excuse them"
    assert not set(capability.unproved) & proved, (
        f"{name}: excused although proved: {set(capability.unproved) & proved}"
    )


def test_checks_are_named_after_their_capability_and_say_what_they_ask() -> None:
    ids = [check.id for check in all_checks()]
    assert len(ids) == len(set(ids))
    for capability in BY_NAME.values():
        for check in capability.checks:
            assert check.capability == capability.name
            assert check.description.endswith("."), f"{check.id} has no docstring that says what it asks"


def test_one_name_is_one_probe() -> None:
    probes: dict[str, str] = {}
    for check in all_checks():
        for probe in check.probes:
            assert probes.setdefault(probe.name, probe.script) == probe.script, f"two probes are called {probe.name}"
            assert probe.evidence, f"probe {probe.name} does not say how a person sees the same"
