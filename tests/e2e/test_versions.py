"""One driver version to another and back; each time the whole set, built, held and verified."""

from __future__ import annotations

import pytest

from tests.e2e.lab import SPEC, Lab, Moved, spec_of

pytestmark = pytest.mark.e2e


def test_exact_older_version_replaces_the_newest(moved: Moved, versions: tuple[str, str]) -> None:
    assert moved.apply.code == 0, moved.apply
    moved.machine.has_driver(versions[1])


def test_branch_keeps_what_is_installed(lab: Lab, moved: Moved, versions: tuple[str, str]) -> None:
    ran = lab.run("apply", lab.inventory(SPEC, moved.machine), "--yes", "--json")
    assert ran.code == 0, ran
    moved.machine.has_driver(versions[1])
    plan = lab.run("plan", lab.inventory(SPEC, moved.machine))
    assert plan.code == 0, plan


def test_plan_names_the_way_back_to_the_newest(lab: Lab, moved: Moved, versions: tuple[str, str]) -> None:
    plan = lab.run("plan", lab.inventory(spec_of(versions[0]), moved.machine), "--quick")
    (moved_set,) = (line for line in plan.out.splitlines() if line.lstrip().startswith(f"~ {versions[1]}-"))
    assert "nvidia-kernel-dkms" in moved_set, plan
    assert f"-> {versions[0]}-" in moved_set, plan
    assert f"1 host: driver {versions[1]} -> {versions[0]} (upgrade), " in plan.out, plan


def test_verify_refuses_the_other_version(lab: Lab, older: str, versions: tuple[str, str]) -> None:
    machine = lab.simulated("other", older)
    ran = lab.run("verify", lab.inventory(spec_of(versions[0]), machine))
    assert ran.code == 1, ran
    assert "nvidia_driver.packages" in ran.out
    assert versions[1] in ran.out
    assert versions[0] in ran.out


def test_unknown_version_names_the_nearest_and_changes_nothing(
    lab: Lab, newest: str, versions: tuple[str, str]
) -> None:
    machine = lab.simulated("unknown", newest)
    before = machine.state()
    ran = lab.run("apply", lab.inventory(spec_of("535.998.77"), machine), "--yes")
    assert ran.code == 3, ran
    assert "535.998.77" in ran.text
    assert f"nearest version with the whole set is {versions[0]}" in ran.text
    assert machine.state() == before
