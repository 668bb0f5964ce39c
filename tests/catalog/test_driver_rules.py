"""The names that a host's index is asked for: by branch where the name has one, and not beyond the branches that are
known."""

from __future__ import annotations

import msgspec

from gpuprov.catalog.distributions import list_supported_names
from gpuprov.catalog.drivers import list_branches
from gpuprov.catalog.drivers.data import PackageSet
from gpuprov.catalog.drivers.rules import NO_LIMIT, list_names, make_rule
from gpuprov.catalog.drivers.sets import find_packages

KNOWN = sorted(int(branch.branch) for branch in list_branches())
OPEN = PackageSet(
    part="driver", distributions=("ubuntu",), origin="nvidia", packages=("x",), version="driver", source=("nvidia",)
)
BOUND = msgspec.structs.replace(OPEN, min_branch=str(KNOWN[1]), max_branch=str(KNOWN[2]))


def test_a_name_with_the_branch_ends_with_the_newest_that_is_known() -> None:
    assert (make_rule(OPEN, "driver-{branch}", "")["min"], make_rule(OPEN, "driver-{branch}", "")["max"]) == (
        0,
        KNOWN[-1],
    )
    assert make_rule(OPEN, "driver", "")["max"] == NO_LIMIT
    assert (make_rule(BOUND, "driver", "")["min"], make_rule(BOUND, "driver", "")["max"]) == (KNOWN[1], KNOWN[2])


def test_each_name_that_can_be_known_beforehand_is_asked_for_once() -> None:
    assert list_names([make_rule(BOUND, "driver-{branch}", "")]) == [f"driver-{branch}" for branch in KNOWN[1:3]]
    assert list_names([make_rule(BOUND, "driver", ""), make_rule(OPEN, "driver", "")]) == ["driver"], (
        "whatever the branch"
    )
    assert list_names([make_rule(OPEN, "modules-{version}", "")]) == []
    assert len(list_names([make_rule(OPEN, "driver-{branch}", "")])) == len(KNOWN)


def test_packages_of_a_distribution_that_is_read_alone_are_known() -> None:
    focal, jammy = (find_packages("ubuntu", version, "distribution") for version in ("20.04", "22.04"))
    assert focal is not None
    assert focal == jammy
    assert find_packages("fedora", "43") is None
    assert "ubuntu 20.04" not in list_supported_names()
