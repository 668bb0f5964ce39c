"""SLES 15 and openSUSE Leap 15: the set by generation (G06, G07), headers by flavour, and what brings another
driver."""

from __future__ import annotations

from typing import Any

from gpuprov.catalog import fabric, repositories
from gpuprov.catalog.drivers.sets import find_packages
from gpuprov.rules import package_lists, resolve
from gpuprov.rules.package_lists import Answer
from tests.rows import run_each

H100 = "10de:2330"
SLES = find_packages("sles", "15.7")
LEAP = find_packages("opensuse-leap", "15.6")
assert SLES
assert LEAP

# The files of NVIDIA's repository sles15 that https://github.com/SUSE/BCI-dockerfile-generator (branch sle15-sp7)
# takes, 2026-08.
V550 = ["550.163.01-1"]
V570 = ["570.211.01-1", "570.195.03-1"]
V575 = ["575.57.08-1"]
V580 = ["580.173.02-1", "580.159.04-1", "580.126.20-1", "580.105.08-1", "580.95.05-1", "580.82.07-1"]
V590 = ["590.48.01-1"]
V595 = ["595.71.05-1", "595.58.03-1", "595.45.04-1"]
V610 = ["610.43.02-1"]
LISTED: dict[str, list[str]] = {
    "dkms": ["3.4.1-2", "3.4.1-1", "3.4.0-1", "3.3.0-1"],
    **{key: [*V595, *V590, *V580] for key in ("libnvidia-cfg", "libnvidia-ml")},
    "libnvidia-gpucomp": [*V595, *V590, *V580, *V575],
    "nvidia-common-G06": [*V580, *V575, *V570],
    **{key: [*V580, *V575, *V570, *V550] for key in ("nvidia-compute-G06", "nvidia-compute-utils-G06")},
    **{key: [*V610, *V595, *V590] for key in ("nvidia-common-G07", "nvidia-compute-G07", "nvidia-compute-utils-G07")},
    **{key: [*V580, *V575] for key in ("nvidia-driver-G06", "nvidia-open-driver-G06")},
    "nvidia-driver-G07": [*V610, *V595, *V590],
    "nvidia-open-driver-G07": [*V595, *V590],
    "nvidia-driver-G06-kmp-default": [*V570, "550.163.01_k6.4.0_150600.23.38-1"],
    "nvidia-open-driver-G06-kmp-default": [*V570, "550.163.01_k6.4.0_150600.23.38-1"],
    "nvidia-fabricmanager": [*V610, *V595, "590.48.01-2", *V580],
    "nvidia-imex": [*V610, *V595, *V590, *V580],
    "nvidia-imex-575": V575,
    **{key: [*V610, *V595, *V590, *V580, *V575, *V570] for key in ("nvidia-modprobe", "nvidia-persistenced")},
    "nvlsm": ["2025.10.14-1", "2025.10.12-1"],
    "kernel-default-devel": ["6.4.0-150700.53.40.1", "6.4.0-150700.51.1"],
}


def decide(wanted: str, **more: Any) -> Answer:
    given = {"modules": "open", "pci_ids": [H100], "table": {H100: "either"}, "index": LISTED, "installed": {}, **more}
    assert SLES
    return resolve.decide(wanted, sets=SLES.sets, **given)


@run_each(
    ("wanted", "modules", "version", "names"),
    [
        ("575", "open", "575.57.08", {"nvidia-open-driver-G06", "libnvidia-gpucomp", "nvidia-common-G06"}),
        ("580", "open", "580.173.02", {"nvidia-open-driver-G06", "libnvidia-cfg", "libnvidia-ml", "libnvidia-gpucomp"}),
        ("580.95.05", "proprietary", "580.95.05", {"nvidia-driver-G06", "nvidia-compute-utils-G06"}),
        ("590", "open", "590.48.01", {"nvidia-open-driver-G07", "nvidia-common-G07", "nvidia-compute-utils-G07"}),
        ("595", "open", "595.71.05", {"nvidia-open-driver-G07", "libnvidia-ml"}),
        ("610", "proprietary", "610.43.02", {"nvidia-driver-G07", "nvidia-compute-G07"}),
    ],
)
def test_the_listing_is_resolved(wanted: str, modules: str, version: str, names: set[str]) -> None:
    found = decide(wanted, modules=modules)
    assert (found["problem"], found["version"]) == ("", version)
    assert names | {"nvidia-persistenced", "nvidia-modprobe"} <= set(found["packages"])
    assert set(found["packages"].values()) == {f"{version}-1"}
    assert all(("G07" in name) == (int(wanted[:3]) >= 590) for name in found["packages"] if "-G0" in name)
    assert ("libnvidia-ml" in found["packages"]) == (580 <= int(wanted[:3]) < 610)


@run_each(
    ("wanted", "modules", "why"),
    [
        ("570", "open", "no driver version matches"),
        ("550", "proprietary", "no driver version matches"),
        ("610", "open", "no nvidia-open-driver-G07 610.43.02"),
    ],
)
def test_what_the_repository_has_no_modules_for_by_dkms(wanted: str, modules: str, why: str) -> None:
    """To 570 the packages compile by themselves when they are installed; open modules of 610 are SUSE's own."""
    found = decide(wanted, modules=modules)
    assert why in found["problem"], found
    assert "whole sets: " in found["fix"]


def test_fabric_manager_has_a_revision_of_its_own() -> None:
    found = decide("590", beside=[fabric.build_rules("sles", "15.6")])
    assert (found["problem"], found["packages"]["nvidia-fabricmanager"]) == ("", "590.48.01-2")
    assert found["packages"]["nvidia-common-G07"] == "590.48.01-1"
    assert fabric.build_rules("sles", "15.6", "imex") == fabric.build_rules("opensuse-leap", "15.6", "imex")


def test_the_next_generation_replaces_the_one_before() -> None:
    have = decide("580.95.05")["packages"]
    found = decide("595", installed=have)
    assert found["problem"] == ""
    assert {"nvidia-open-driver-G06", "nvidia-common-G06", "nvidia-compute-G06"} <= set(found["replaced"])
    assert decide("580", installed=have)["kept"], "a second run never upgrades"
    assert decide("580", installed=have, modules="proprietary")["replaced"] == ["nvidia-open-driver-G06"]


@run_each(
    "name",
    [
        "nvidia-open-driver-G06-signed-cuda-kmp-default",
        "nvidia-open-driver-G07-signed-kmp-meta",
        "nvidia-driver-G06-kmp-default",
        "nvidia-gfxG05-kmp-default",
        "nvidia-open-gfxG05-kmp-default",
        "x11-video-nvidiaG05",
        "nv-prefer-signed-open-driver",
    ],
)
def test_other_modules_are_another_driver(name: str) -> None:
    assert SLES
    assert SLES.foreign(name, name)
    assert not any(SLES.foreign(mine, mine) for mine in SLES.ask)


def test_headers_are_a_version_of_the_flavours_package() -> None:
    assert SLES
    running, old, azure = "6.4.0-150700.53.40-default", "6.4.0-150700.53.6-default", "6.4.0-150700.20.3-azure"
    assert package_lists.header_packages(SLES.headers, [running, azure]) == [
        "kernel-default-devel=6.4.0-150700.53.40",
        "kernel-azure-devel=6.4.0-150700.20.3",
    ]
    assert package_lists.without_release("kernel-azure-devel=6.4.0-150700.20.3") == "kernel-azure-devel"
    exact = package_lists.header_packages(SLES.headers, [running, old], LISTED)
    assert exact == ["kernel-default-devel=6.4.0-150700.53.40.1", "kernel-default-devel=6.4.0-150700.53.6"]
    rows = [["kernel", old, "1", "0", "0"], ["kernel", running, "1", "0", "1"]]
    assert package_lists.without_headers(SLES.headers, rows, LISTED) == [old]


def test_leap_is_sles_with_a_repository_of_its_own() -> None:
    assert SLES
    assert LEAP
    assert (LEAP.sets, LEAP.headers) == (SLES.sets, SLES.headers)
    assert find_packages("sles", "12.5") is None
    assert find_packages("opensuse-tumbleweed", "20261101") is None
    assert find_packages("sles", "15.7", "distribution") is None
    urls = {key: (repositories.find_cuda_repository(key) or {})["url"].split("/")[-3] for key in ("sles15", "leap15")}
    assert urls == {"sles15": "sles15", "leap15": "opensuse15"}
    assert repositories.find_cuda_repository("leap15", "aarch64") is None
