"""The bugs of packages, kernels and Fabric Manager on the other distributions, under the names that they have there."""

from __future__ import annotations

from typing import Any

import pytest

from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.catalog.drivers.sets import find_packages
from gpuprov.rules import resolve
from tests.capabilities import contents_host
from tests.capabilities.asking import daemon, older, units
from tests.capabilities.test_nvidia_driver_source import dpkg, repoquery, rpm
from tests.facts.probes import captured
from tests.historic.families import (
    EL,
    EL_KERNEL,
    FAMILIES,
    HOSTS,
    NEW,
    OLD,
    PLUGIN,
    UBUNTUS,
    UBUNTUS_KERNEL,
    UBUNTUS_NEW,
    VERSION,
    caught_on,
    el_fabric,
    ubuntus_fabric,
)
from tests.historic.listed import judged, spec
from tests.rows import run_each

HELD, PACKAGES, USER_SPACE = "nvidia_driver.held", "nvidia_driver.packages", "nvidia_driver.user_space"
DEAD: dict[str, Any] = {
    "units": units(fabric=("failed", "enabled")),
    "contents": contents_host.unit("nvidia-fabricmanager.service", "failed", "enabled"),
}
COMPLAINT = "fabric manager NVIDIA GPU driver interface version {} don't match with driver version {}. Please update"


def moved(name: str, version: str = NEW, *, of: str = EL) -> str:
    """An EL host's packages after one of them moved alone, whose lock was missing."""
    rows = []
    for line in (rpm(of) + el_fabric()).splitlines():
        kind, _, rest = line.partition("|")
        if kind == "lock" and rest.startswith(f"{name}-3:"):
            continue
        mine = kind == "rpm" and rest.startswith(f"{name}|")
        rows.append(line.replace(VERSION, version) if mine else line)
    return "\n".join(rows) + "\n"


def another(version: str, name: str = "nvidia-fabricmanager") -> dict[str, Any]:
    """An EL host's Fabric Manager of another version than the driver: refused by itself, dead."""
    fabric = el_fabric(version, name)
    log = COMPLAINT.format(version, VERSION)
    told = daemon(version, "", log=log)
    return {"packages": rpm(EL) + fabric, "fabric_packages": PLUGIN + fabric, "fabric_manager": told, **DEAD}


def plan(on: str, version: str, **changed: str) -> dict[str, tuple[str, str]]:
    """Package changes that a plan has for this driver version: before and after, by name."""
    results = judged(spec(NvidiaDriver(version=version), fabric=True), **{**HOSTS[on], **changed})
    result = results["nvidia_driver.resolvable"]
    assert result.status == "pass", result
    return {change.name: (change.before, change.after) for change in result.changes}


def test_01_an_automatic_upgrade_moves_one_package_elsewhere() -> None:
    libraries = f"/usr/lib64/libcuda.so.{NEW}\n/usr/lib64/libnvidia-ml.so.{VERSION}\n"
    told = caught_on(
        "EL",
        "1",
        "nvidia_driver.held",
        "nvidia_driver.packages",
        "nvidia_driver.user_space",
        packages=moved("nvidia-driver-cuda-libs"),
        driver_libraries=libraries,
    )
    assert f"nvidia-driver-cuda-libs={NEW}" in told[PACKAGES].found
    name = "libnvidia-compute-580-server"
    planted = dpkg(UBUNTUS).replace(f"hi |{name}|{UBUNTUS}", f"ii |{name}|{UBUNTUS_NEW}")
    told = caught_on(
        "Ubuntu", "1", HELD, PACKAGES, USER_SPACE, packages=planted + ubuntus_fabric(), driver_libraries=libraries
    )
    assert f"{name}={NEW}" in told[PACKAGES].found


def test_02_fabric_manager_of_el_is_of_the_same_branch_only() -> None:
    told = caught_on(
        "EL", "2", "fabric_manager.version", "fabric_manager.active", along=["fabric_manager.log"], **another(NEW)
    )
    assert told["fabric_manager.version"].found == f"nvidia-fabricmanager {NEW}-1"


def test_03_fabric_manager_of_el_has_the_name_of_another_branch() -> None:
    told = caught_on(
        "EL",
        "3",
        "fabric_manager.version",
        along=["fabric_manager.active", "fabric_manager.log"],
        **another(OLD, "nvidia-fabric-manager"),
    )
    assert told["fabric_manager.version"].found == f"nvidia-fabric-manager {OLD}-1"


def test_04_only_the_metapackage_is_held_elsewhere() -> None:
    meta = (
        f"rpm|nvidia-open|3|{VERSION}|1.el9|noarch|nvidia-open-{VERSION}-1.el9.src.rpm\nlock|"
        f"nvidia-open-3:{VERSION}-1.el9.*\n"
    )
    told = caught_on("EL", "4", "nvidia_driver.held", packages=rpm(EL, locked=False) + el_fabric() + meta)
    assert "nvidia-open" not in told[HELD].found.split()
    held = f"hi |nvidia-headless-580-server-open|{UBUNTUS}|nvidia-graphics-drivers-580-server\n"
    told = caught_on("Ubuntu", "4", HELD, packages=dpkg(UBUNTUS, state="ii ") + ubuntus_fabric() + held)
    assert "nvidia-headless-580-server-open" not in told[HELD].found.split()
    assert "nvidia-dkms-580-server-open" in told[HELD].found.split()


@pytest.mark.parametrize("on", FAMILIES)
def test_05_a_runfile_beside_packages_elsewhere(on: str) -> None:
    caught_on(on, "5", "nvidia_driver.leftovers", runfile_leftovers="/usr/bin/nvidia-uninstall\n")


def test_06_user_space_of_el_moved_under_the_loaded_module() -> None:
    planted = (rpm(EL) + el_fabric()).replace(VERSION, NEW)
    caught_on(
        "EL",
        "6",
        "nvidia_driver.loaded",
        "nvidia_driver.user_space",
        along=["persistence.mode_on", "fabric_manager.version", "fabric_manager.active"],
        packages=planted,
        fabric_packages=PLUGIN + el_fabric(NEW),
        fabric_manager=daemon(NEW),
        unit_reads=older("nvidia-fabricmanager.service", "/usr/bin/nv-fabricmanager"),
        kernels=f"{EL_KERNEL}|1|1|{NEW}|1\n",
        driver_libraries=f"/usr/lib64/libcuda.so.{NEW}\n/usr/lib64/libnvidia-ml.so.{NEW}\n",
        nvidia_smi=captured("nvidia_smi", "mismatch", 18),
    )


def test_07_libnvidia_common_is_not_held() -> None:
    common = f"ii |libnvidia-common-580-server|{UBUNTUS}|nvidia-graphics-drivers-580-server\n"
    host = dpkg(UBUNTUS) + ubuntus_fabric()
    told = caught_on("Ubuntu", "7", "nvidia_driver.held", packages=host + common)
    assert told[HELD].found == "not held: libnvidia-common-580-server"
    caught_on(
        "Ubuntu",
        "7",
        "nvidia_driver.held",
        "nvidia_driver.packages",
        along=[USER_SPACE],
        packages=host + common.replace(UBUNTUS, UBUNTUS_NEW),
    )


def test_08_own_locks_do_not_block_an_upgrade() -> None:
    caught_on("EL", "8", "nvidia_driver.packages", driver=NvidiaDriver(version=NEW))
    planned = plan("EL", NEW)
    assert planned["kmod-nvidia-open-dkms"] == (EL, EL.replace(VERSION, NEW))
    assert planned["nvidia-fabricmanager"] == (f"{VERSION}-1", f"{NEW}-1")


def test_09_an_exact_version_is_no_module_stream() -> None:
    told = caught_on(
        "EL",
        "9",
        "nvidia_driver.resolvable",
        along=[PACKAGES, "nvidia_driver.flavour"],
        driver=NvidiaDriver(version="470.82.01"),
        package_index=str(HOSTS["EL"]["package_index"]) + repoquery(EL, flavour="proprietary"),
    )
    assert '"470.82.01"' in told["nvidia_driver.resolvable"].found
    streams = {major: find_packages("rhel", major) for major in ("8", "9", "10")}
    assert all(streams.values())
    told_streams = {major: found.streams for major, found in streams.items() if found}
    named = {"proprietary": "nvidia-driver:{branch}-dkms", "open": "nvidia-driver:{branch}-open"}
    assert told_streams == {"8": named, "9": named, "10": {}}, "a stream is of a branch, never of an exact version"


def test_14_the_kernel_of_el_or_ubuntu_moved_on() -> None:
    following = EL_KERNEL.replace("570.12.1", "570.17.1")
    images = f"image /boot/initramfs-{EL_KERNEL}.img 1 0 dracut\nimage /boot/initramfs-{following}.img 1 0 dracut\n"
    now = f"{EL_KERNEL}|1|1|{VERSION}|1\n"
    told = caught_on(
        "EL",
        "14",
        "nvidia_driver.headers",
        "nvidia_driver.modules_built",
        along=["nvidia_driver.next_kernel"],
        initramfs=images,
        kernels=f"{now}{following}|1|0||1\n",
    )
    assert f"kernel-devel-{following}" in [change.name for change in told["nvidia_driver.headers"].changes]
    prebuilt = f"ii |linux-modules-nvidia-580-server-open-{UBUNTUS_KERNEL}|6.8.0-60.63|linux-restricted-modules\n"
    told = caught_on(
        "Ubuntu", "14", "nvidia_driver.precompiled", packages=dpkg(UBUNTUS) + ubuntus_fabric() + prebuilt
    )  # fmt: skip
    assert "linux-modules-nvidia" in told["nvidia_driver.precompiled"].found


@run_each("asked", ["any", "580", VERSION])
@run_each("on", FAMILIES)
def test_15_a_second_run_upgrades_nothing_elsewhere(on: str, asked: str) -> None:
    assert plan(on, asked) == {}
    fresh = plan(on, "580", packages=PLUGIN if on == "EL" else "", fabric_packages=PLUGIN if on == "EL" else "")
    assert {resolve.upstream(after) for _, after in fresh.values()} - {"newest"} == {NEW}
    caught_on(on, "15", "nvidia_driver.packages", driver=NvidiaDriver(version=NEW))


@pytest.mark.parametrize("on", FAMILIES)
def test_26_fabric_manager_is_dead_elsewhere(on: str) -> None:
    caught_on(on, "26", "fabric_manager.active", fabric_manager=daemon(VERSION, ""), **DEAD)
