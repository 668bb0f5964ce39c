"""Bugs of packages: versions that drift apart, holds that hold too little or too much, versions that nobody offers."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.host_code.packages.apt import OPTIONS
from gpuprov.render.variables import host_variables
from gpuprov.verify.verify import exit_code
from tests.capabilities.asking import NEWER, PROPRIETARY, VERSION, packages
from tests.facts.probes import captured
from tests.historic.listed import bug, caught, judged, spec

ROLES = Path(__file__).parents[2] / "roles"
OTHER_BRANCH = "550.163.01-2"
NEWER_CUDA = "/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.535.309.01\n"
OLDER_NVML = "/usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.535.261.03\n"
NEWER_LIBRARIES = NEWER_CUDA + NEWER_CUDA.replace("libcuda", "libnvidia-ml")
META = "ii |nvidia-driver|{}|nvidia-graphics-drivers\n"


def offering(version: str, *, without: str = "") -> str:
    """bookworm's index, with one more version of the whole set in front, or of the set without one package."""
    source = "http://mirror.example/debian bookworm-backports/non-free amd64 Packages"
    lines = [f"{name} | {version} | {source}\n" for name in PROPRIETARY if name != without]
    return "".join(lines) + captured("package_index", "bookworm").text


def moves(version: str, text: str, index: str) -> dict[str, tuple[str, str]]:
    """Package changes that a plan has for this version: before and after, by name."""
    results = judged(spec(NvidiaDriver(version=version)), packages=text, package_index=index)
    result = results["nvidia_driver.resolvable"]
    assert result.status == "pass", result
    return {change.name: (change.before, change.after) for change in result.changes}


def test_01_an_automatic_upgrade_moves_one_package() -> None:
    told = caught(
        "1",
        "nvidia_driver.held",
        "nvidia_driver.packages",
        "nvidia_driver.user_space",
        packages=packages(libcuda1=("ii ", NEWER)),
        driver_libraries=NEWER_CUDA + OLDER_NVML,
    )
    assert "libcuda1=535.309.01" in told["nvidia_driver.packages"].found
    assert not any(result.reboot for result in told.values()), "a reboot fixes nothing here"


def test_02_one_part_has_another_version_of_the_same_branch() -> None:
    told = caught(
        "2",
        "nvidia_driver.packages",
        along=["nvidia_driver.user_space"],
        packages=packages(firmware_nvidia_gsp=("hi ", NEWER)),
    )
    assert "firmware-nvidia-gsp=535.309.01" in told["nvidia_driver.packages"].found


def test_03_one_part_is_of_another_branch() -> None:
    told = caught(
        "3",
        "nvidia_driver.packages",
        along=["nvidia_driver.user_space"],
        packages=packages(nvidia_smi=("hi ", OTHER_BRANCH)),
    )
    assert "nvidia-smi=550.163.01" in told["nvidia_driver.packages"].found


def test_04_only_the_metapackage_is_held() -> None:
    held = META.format(VERSION).replace("ii ", "hi ")
    told = caught("4", "nvidia_driver.held", packages=packages(state="ii ") + held)
    assert "nvidia-driver" not in told["nvidia_driver.held"].found.split()
    assert set(PROPRIETARY) <= set(told["nvidia_driver.held"].found.split())
    caught(
        "4",
        "nvidia_driver.held",
        "nvidia_driver.packages",
        along=["nvidia_driver.loaded", "nvidia_driver.user_space", "persistence.mode_on"],
        packages=packages(version=NEWER, state="ii ") + held,
        kernels="6.1.0-47-amd64|1|1|535.309.01|1\n",
        driver_libraries=NEWER_LIBRARIES,
        nvidia_smi=captured("nvidia_smi", "mismatch", 18),
    )


def test_05_runfile_and_packages_side_by_side() -> None:
    caught(
        "5",
        "nvidia_driver.leftovers",
        "nvidia_driver.user_space",
        runfile_leftovers="/usr/bin/nvidia-uninstall\n",
        driver_libraries="/usr/lib/libcuda.so.580.95.05\n/usr/lib/libnvidia-ml.so.580.95.05\n",
    )


def test_07_a_library_of_the_same_source_is_not_held() -> None:
    told = caught("7", "nvidia_driver.held", packages=packages(libnvidia_encode1=("ii ", VERSION)))
    assert told["nvidia_driver.held"].found == "not held: libnvidia-encode1"
    caught(
        "7",
        "nvidia_driver.held",
        "nvidia_driver.packages",
        along=["nvidia_driver.user_space"],
        packages=packages(libnvidia_encode1=("ii ", NEWER)),
    )


def test_08_own_holds_do_not_block_an_upgrade() -> None:
    caught("8", "nvidia_driver.packages", driver=NvidiaDriver(version="535.309.01"))
    planned = moves("535.309.01", packages(), captured("package_index", "bookworm").text)
    assert {name: pair for name, pair in planned.items() if name in PROPRIETARY} == dict.fromkeys(
        PROPRIETARY, (VERSION, NEWER)
    )
    assert "--allow-change-held-packages" in OPTIONS
    for file in ROLES.rglob("tasks/**/*.yml"):
        if "host" not in file.relative_to(ROLES).parts:
            for line in file.read_text().splitlines():
                assert not ("apt-get" in line and " install" in line and "argv" in line), f"{file}: apt has one home"


def test_09_a_pinned_version_that_nobody_offers() -> None:
    told = caught(
        "9",
        "nvidia_driver.resolvable",
        along=["nvidia_driver.packages"],
        driver=NvidiaDriver(version="470.82.01"),
    )
    assert '"470.82.01"' in told["nvidia_driver.resolvable"].found
    assert NEWER.partition("-")[0] in told["nvidia_driver.resolvable"].fix
    anolis = 'ID="anolis"\nVERSION_ID="8.9"\nPRETTY_NAME="Anolis OS 8.9"\n'
    refused = judged(spec(), os_release=anolis)["host.supported"]
    assert refused.status == "fail"
    assert next(entry.fix for entry in bug("9").caught if entry.check == "host.supported") in refused.fix


def test_10_changing_the_branch_moves_everything_or_nothing() -> None:
    told = caught(
        "10",
        "nvidia_driver.resolvable",
        along=["nvidia_driver.packages"],
        driver=NvidiaDriver(version="550"),
        package_index=offering(OTHER_BRANCH, without="libcuda1"),
    )
    assert "no libcuda1 550.163.01" in told["nvidia_driver.resolvable"].found
    text = packages(libnvidia_encode1=("hi ", VERSION)) + META.format(VERSION)
    planned = moves("550", text, offering(OTHER_BRANCH))
    for name in (*PROPRIETARY, "libnvidia-encode1", "nvidia-driver"):
        assert planned[name] == (VERSION, OTHER_BRANCH), f"{name} would stay behind and break the transaction"


@pytest.mark.parametrize("asked", ["any", "535", "535.261.03"])
def test_15_a_second_run_upgrades_nothing(asked: str) -> None:
    index = captured("package_index", "bookworm").text
    assert {name for name in moves(asked, packages(), index) if name in PROPRIETARY} == set()
    fresh = moves("535", "", index)
    assert fresh["libcuda1"] == ("", NEWER), "the index has a newer version, which a fresh host gets"
    caught("15", "nvidia_driver.packages", driver=NvidiaDriver(version=NEWER.partition("-")[0]))


def test_more_another_version_than_asked_for_does_not_pass_the_gate() -> None:
    told = caught("+", "nvidia_driver.packages", driver=NvidiaDriver(version="535.309.01"))
    assert exit_code(told.values()) == 1
    asked = spec(NvidiaDriver(version="535.309.01"))
    assert host_variables(asked)["gpuprov_capabilities"] == list(asked.capabilities), "every block's role is run"
