"""Which kernel modules a GPU needs, by PCI id."""

from __future__ import annotations

from gpuprov.catalog.drivers.sets import build_kernel_module_table
from gpuprov.rules import resolve
from gpuprov.rules.package_lists import Rule
from tests.resolve.test_distributions import U580, UBUNTU, decide, offer
from tests.rows import run_each


def rule(name: str) -> Rule:
    return {"name": name, "min": 0, "max": 9999}


V100, H100, B200, UNKNOWN = "10de:1db1", "10de:2330", "10de:2901", "10de:22ff"
NEXT = "10de:2e77"
"""A GPU that the catalogue does not know, of a generation after Hopper."""


@run_each(
    ("wanted", "ids", "branch", "flavour", "problem"),
    [
        ("auto", [], "535", "proprietary", ""),
        ("auto", [], "580", "open", ""),
        ("auto", [], "0", "proprietary", ""),
        ("auto", [UNKNOWN], "535", "proprietary", ""),
        ("auto", [H100, H100], "550", "proprietary", ""),
        ("auto", [H100], "560", "open", ""),
        ("auto", [B200], "570", "open", ""),
        ("auto", [V100], "580", "proprietary", ""),
        (
            "auto",
            [B200],
            "470",
            "open",
            f"GPU {B200} runs with open kernel modules only, and branch 470 has none; the first is 515",
        ),
        ("auto", [H100, B200], "570", "open", ""),
        ("auto", [NEXT], "550", "open", ""),
        ("proprietary", [NEXT], "580", "proprietary", f"kernel_modules is proprietary, but GPU {NEXT} runs with open"),
        ("auto", [V100, B200], "570", "open", f"GPU {B200} needs open modules, GPU {V100} proprietary ones"),
        ("open", [H100], "535", "open", ""),
        ("open", [UNKNOWN], "515", "open", ""),
        ("open", [H100], "470", "open", "kernel_modules is open, and branch 470 has none; the first is 515"),
        ("open", [V100], "580", "open", f"kernel_modules is open, but GPU {V100} has no GSP"),
        ("proprietary", [H100], "580", "proprietary", ""),
        ("proprietary", [V100], "580", "proprietary", ""),
        (
            "proprietary",
            [B200],
            "580",
            "proprietary",
            f"kernel_modules is proprietary, but GPU {B200} runs with open modules only",
        ),
    ],
)
def test_flavour(wanted: str, ids: list[str], branch: str, flavour: str, problem: str) -> None:
    answer = resolve.flavour(wanted, ids, build_kernel_module_table(), branch)
    assert answer["flavour"] == flavour
    assert answer["problem"].startswith(problem)
    assert bool(answer["problem"]) == bool(problem)
    assert answer["reason"]


def test_a_flavour_that_cannot_be_ends_the_decision() -> None:
    answer = resolve.decide(
        "580",
        "proprietary",
        [B200],
        build_kernel_module_table(),
        {"proprietary": [rule("a")], "open": [rule("b")]},
        {},
        {},
    )
    assert (answer["version"], answer["packages"]) == ("", {})
    assert "kernel_modules at auto" in answer["fix"]


@run_each(
    ("installed", "index", "flavour"),
    [
        ({"nvidia-open": "580.95.05-1"}, {"nvidia-open": ["535.261.03-1"]}, "open"),
        ({}, {"nvidia-closed": ["535.309.01-1", "535.261.03-1"]}, "proprietary"),
        ({}, {"nvidia-closed": ["535.261.03-1"], "nvidia-open": ["580.95.05-1"]}, "open"),
    ],
)
def test_any_version_takes_its_branch_from_the_host(
    installed: dict[str, str], index: dict[str, list[str]], flavour: str
) -> None:
    sets = {"proprietary": [rule("nvidia-closed")], "open": [rule("nvidia-open")]}
    assert (
        resolve.decide("any", "auto", [H100], build_kernel_module_table(), sets, index, installed)["flavour"] == flavour
    )


@run_each(
    ("flavour", "version"), [("proprietary", "615.71.09-0ubuntu0.24.04.2"), ("open", "525.147.05-0ubuntu0.22.04.1")]
)
def test_a_branch_without_modules_of_the_flavour_is_none(flavour: str, version: str) -> None:
    """Ubuntu's nvidia-dkms-615-server is a transitional package, and its 525-server had no open modules: without them,
    the rest of the set is there whole."""
    branch, other = version[:3], "open" if flavour == "proprietary" else "proprietary"
    index = offer(UBUNTU, version, flavours=("open", "proprietary"))
    index |= {f"nvidia-dkms-{branch}-server": [version], f"nvidia-kernel-source-{branch}-server": [version]}
    answer = decide(UBUNTU, branch, modules=flavour, index=index)
    assert answer["packages"] == {}
    assert f"this distribution's packages of branch {branch} have no {flavour} modules" in answer["problem"]
    assert decide(UBUNTU, branch, modules=other, index=index)["version"] == resolve.upstream(version)
    both = index | offer(UBUNTU, U580, flavours=("open", "proprietary"))
    assert decide(UBUNTU, "any", modules=flavour, index=both)["version"] == "580.95.05"
    there = dict.fromkeys(index, version)
    assert list(resolve.kernel_package(UBUNTU.sets, there)) == [other]
