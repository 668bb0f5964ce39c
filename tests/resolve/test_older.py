"""GPUs older than Turing, most of which the catalogue does not know; and which branch `any` takes of several."""

from __future__ import annotations

import re

from gpuprov.catalog.drivers import list_settled
from gpuprov.catalog.drivers.sets import build_kernel_module_table
from gpuprov.rules import resolve
from gpuprov.rules.package_lists import Answer, Rule
from tests.facts.probes import published

P4, P40, P100, TITAN_V, GT_1030 = "10de:1bb3", "10de:1b38", "10de:15f8", "10de:1d81", "10de:1d01"
V100, V100_UNKNOWN, T4, H100, K80 = "10de:1db1", "10de:1db2", "10de:1eb8", "10de:2330", "10de:102d"
TURING_UNKNOWN = "10de:1e04"
SETS = {kind: [Rule(name=f"kmod-{kind}", min=0, max=9999)] for kind in ("proprietary", "open")}


def offer(*versions: str) -> dict[str, list[str]]:
    return {f"kmod-{kind}": [f"{version}-1" for version in versions] for kind in SETS}


def decide(
    wanted: str, modules: str, gpu: str, index: dict[str, list[str]], installed: dict[str, str] | None = None
) -> Answer:
    return resolve.decide(
        wanted, modules, [gpu], build_kernel_module_table(), SETS, index, installed or {}, first=list_settled()
    )


def test_real_hosts_that_refused_the_open_modules_or_the_branch() -> None:
    """The ids and branches are those of what the kernel logged there."""
    logged = published("p4-open-580", "dmesg").text
    refused = re.search(r"PCI ID: (10de:\w{4})", logged)
    assert refused
    assert "not supported by open" in logged
    answer = resolve.flavour("open", [refused[1]], build_kernel_module_table(), "580")
    assert answer["problem"] == (
        f"kernel_modules is open, but GPU {P4} has no GSP and runs with proprietary modules only"
    )
    legacy = published("p100-595-legacy", "dmesg").text
    last, loaded = re.search(r"NVIDIA (\d+)\.xx Legacy", legacy), re.search(r"The (\d+)\.[\d.]+ NVIDIA driver", legacy)
    assert last
    assert loaded
    assert resolve.last_branch([P100]) == int(last[1])
    answer = resolve.flavour("auto", [P100], build_kernel_module_table(), loaded[1])
    assert answer["problem"] == f"GPU {P100} is not supported by branch 595: 580 is the last"


def test_what_is_older_than_turing_has_proprietary_modules_up_to_580() -> None:
    for gpu in (P4, P40, P100, TITAN_V, GT_1030, V100, V100_UNKNOWN):
        for branch in ("570", "580"):
            assert resolve.flavour("auto", [gpu], build_kernel_module_table(), branch)["flavour"] == "proprietary", gpu
            assert "has no GSP" in resolve.flavour("open", [gpu], build_kernel_module_table(), branch)["problem"], gpu
        for branch in ("590", "595", "610"):
            for wanted in ("auto", "open", "proprietary"):
                answer = resolve.flavour(wanted, [gpu], build_kernel_module_table(), branch)
                assert f"not supported by branch {branch}: 580 is the last" in answer["problem"], gpu
    assert "470 is the last" in resolve.flavour("auto", [K80], build_kernel_module_table(), "535")["problem"]
    for gpu in (T4, TURING_UNKNOWN, H100):
        assert resolve.flavour("auto", [gpu], build_kernel_module_table(), "610") == {
            "flavour": "open",
            "reason": "NVIDIA's default from branch 560 on is open",
            "problem": "",
        }


def test_any_version_stays_within_what_every_gpu_runs_with() -> None:
    index = offer("610.43.03", "595.71.05", "590.48.01", "580.159.03", "570.172.08")
    for gpu in (P4, P100, V100, V100_UNKNOWN):
        answer = decide("any", "auto", gpu, index)
        assert (answer["version"], answer["flavour"], answer["problem"]) == ("580.159.03", "proprietary", ""), gpu
    answer = decide("any", "auto", P4, index, {"kmod-open": "595.71.05-1"})
    assert (answer["version"], answer["kept"], answer["replaced"]) == ("580.159.03", False, ["kmod-open"])
    answer = decide("any", "auto", P4, offer("595.71.05", "590.48.01"))
    assert answer["problem"] == 'no driver version matches "580" in the host\'s repositories'
    for wanted in ("595", "595.71.05"):
        answer = decide(wanted, "auto", P4, index)
        assert answer["problem"] == f"GPU {P4} is not supported by branch 595: 580 is the last"
        assert answer["packages"] == {}


def test_any_version_prefers_production_branches_to_new_feature_branches() -> None:
    assert {"595", "580", "590", "610"} & set(list_settled()) == {"595", "580"}
    cases = {
        ("610.43.03", "595.71.05", "580.159.03"): "595.71.05",
        ("610.43.03", "580.159.03"): "580.159.03",
        ("610.43.03", "590.48.01"): "610.43.03",  # nothing else is there
    }
    for versions, wanted in cases.items():
        assert decide("any", "auto", H100, offer(*versions))["version"] == wanted
    partial = {**offer("610.43.03", "595.71.05"), "kmod-open": ["610.43.03-1"]}
    assert decide("any", "open", H100, partial)["version"] == "610.43.03"
    kept = decide("any", "auto", H100, offer("595.71.05"), {"kmod-open": "610.43.03-1"})
    assert (kept["version"], kept["kept"]) == ("610.43.03", True)
    assert decide("610", "auto", H100, offer("610.43.03", "595.71.05"))["version"] == "610.43.03"
