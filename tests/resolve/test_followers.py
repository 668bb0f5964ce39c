"""A package that must have the driver's version under a name of its own: Fabric Manager, decided on with the driver."""

from __future__ import annotations

from gpuprov.catalog import fabric
from gpuprov.catalog.drivers.sets import find_packages
from gpuprov.host_code.packages import lists
from gpuprov.rules import resolve
from gpuprov.rules.package_lists import Answer
from tests.facts.probes import captured

NAMES = find_packages("debian", "12")
assert NAMES
RULES_OF = NAMES.sets
SETS = {flavour: list(resolve.fitting(rules, "535")) for flavour, rules in NAMES.sets.items()}
RULES = fabric.build_rules("debian", "12")
BOOKWORM = lists.parse_madison(captured("package_index", "bookworm").text)
OLD, NEW = "535.261.03-1", "535.309.01-0+deb12u1"
FM = "nvidia-fabricmanager-535"
WHOLE = {FM: ["535.309.01-1", "535.261.03-1"]}


def decide(wanted: str, offered: dict[str, list[str]], installed: dict[str, str] | None = None) -> Answer:
    """What a bookworm host with these Fabric Managers in its repositories should have."""
    index = BOOKWORM | offered
    return resolve.decide(wanted, "proprietary", [], {}, RULES_OF, index, installed or {}, beside=[RULES])


def of(driver: str) -> dict[str, str]:
    return dict.fromkeys(SETS["proprietary"], driver)


def test_the_newest_version_that_both_have() -> None:
    assert decide("535", WHOLE)["packages"] == {**of(NEW), FM: "535.309.01-1"}
    behind = decide("535", {FM: ["535.261.03-1"]})
    assert (behind["version"], behind["packages"][FM]) == ("535.261.03", "535.261.03-1")


def test_no_repository_has_any() -> None:
    answer = decide("535", {})
    assert answer["problem"].endswith(f"no {FM} 535.309.01")
    assert answer["fix"] == resolve.NO_FOLLOWER


def test_a_metapackage_or_another_branchs_package_is_no_fabric_manager() -> None:
    others = {"cuda-drivers-fabricmanager-535": ["535.309.01-1"], "nvidia-fabricmanager-550": ["535.309.01-1"]}
    assert decide("535", others)["version"] == ""


def test_a_whole_installed_set_is_kept_and_completed() -> None:
    kept = decide("535", WHOLE, of(OLD))
    assert (kept["kept"], kept["version"], kept["packages"][FM]) == (True, "535.261.03", "535.261.03-1")
    again = decide("535", {}, {**of(OLD), FM: "535.261.03-1"})
    assert (again["kept"], again["packages"][FM]) == (True, "535.261.03-1"), "what is installed need not be offered"


def test_a_driver_without_fabric_manager_moves_to_one_that_has_it() -> None:
    answer = decide("535", {FM: ["535.261.03-1"]}, of(NEW))
    assert (answer["kept"], answer["version"]) == (False, "535.261.03")


def test_fabric_manager_that_ran_ahead_comes_back() -> None:
    answer = decide("535.261.03", WHOLE, {**of(OLD), FM: "535.309.01-1"})
    assert answer["packages"][FM] == "535.261.03-1"


def test_a_change_of_branch_replaces_the_old_name() -> None:
    index = {name: ["580.95.05-1"] for name in (*SETS["proprietary"], "nvidia-fabricmanager")}
    installed = {**of(OLD), FM: "535.261.03-1", "nvidia-fabricmanager-dev-535": "535.261.03-1"}
    answer = resolve.pick("580", RULES_OF, "proprietary", index, installed, [RULES])
    assert answer["packages"]["nvidia-fabricmanager"] == "580.95.05-1"
    assert answer["replaced"] == [FM]


def test_the_revision_of_the_drivers_own_archive_wins() -> None:
    rules = fabric.build_rules("ubuntu", "24.04")
    ubuntu = "535.261.03-0ubuntu0.24.04.1"
    index = {FM: ["535.261.03-1", ubuntu]}
    driver = ["nvidia-kernel-common-535-server"]
    assert resolve.follower(ubuntu, rules, index, {}, driver) == (FM, ubuntu)
    assert resolve.follower("535.261.03-1", rules, index, {}, driver) == (FM, "535.261.03-1")
    assert resolve.follower(ubuntu, rules, index, {FM: "535.261.03-1"}, driver) == (FM, "535.261.03-1"), "kept"


def test_what_follows_an_installed_driver_replaces_that_of_another_branch() -> None:
    old = {"nvidia-fabricmanager-550": "550.163.01-1", "bash": "5"}
    answer = resolve.follow("535.261.03", RULES, WHOLE, old)
    assert (answer["name"], answer["version"]) == (FM, "535.261.03-1")
    assert answer["replaced"] == ["nvidia-fabricmanager-550"]
    assert resolve.follow("535.261.03", RULES, WHOLE, {FM: "535.261.03-1"})["replaced"] == []
    lacking = resolve.follow("550.163.01", RULES, WHOLE, {})
    assert "no nvidia-fabricmanager-550 550.163.01, the installed driver's version" in lacking["problem"]
