"""Bugs of package sources and of what is built on the driver: names, locks, keys, CUDA, DCGM, virtual machines."""

from __future__ import annotations

from typing import Any

import pytest

from gpuprov.capabilities.cuda_toolkit.fragment import CudaToolkit
from gpuprov.capabilities.dcgm.fragment import Dcgm
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.capabilities.vgpu_guest.fragment import VgpuGuest
from gpuprov.facts.probes.base import Output
from gpuprov.spec.model import HostSpec
from tests.capabilities import cuda_host, vgpu_host
from tests.capabilities.asking import H100, daemon
from tests.capabilities.test_nvidia_driver_source import dpkg, rpm
from tests.historic.families import (
    EL,
    EL_OLD,
    HOSTS,
    NEW,
    NVIDIAS_SOURCE,
    OLD,
    PLUGIN,
    UBUNTUS,
    UBUNTUS_OLD,
    VERSION,
    caught_on,
    el_fabric,
    ubuntus_fabric,
)
from tests.historic.listed import caught, judged, spec
from tests.historic.test_families import DEAD

NVIDIAS = f"{VERSION}-0ubuntu1"


def test_31_fabric_manager_has_another_name_from_580_on() -> None:
    old = el_fabric(OLD, "nvidia-fabric-manager")
    caught_on(
        "EL",
        "31",
        "fabric_manager.version",
        along=["fabric_manager.active"],
        packages=rpm(EL) + old,
        fabric_packages=PLUGIN + old,
        fabric_manager=daemon(OLD, ""),
        **DEAD,
    )
    before = {"packages": rpm(EL_OLD) + old, "fabric_packages": PLUGIN + old}
    results = judged(spec(NvidiaDriver(version=VERSION), fabric=True), **{**HOSTS["EL"], **before})
    planned = {change.name: (change.before, change.after) for change in results["nvidia_driver.resolvable"].changes}
    assert planned["nvidia-fabric-manager"] == (f"{OLD}-1", "removed")
    assert planned["nvidia-fabricmanager"] == ("", f"{VERSION}-1")


@pytest.mark.parametrize(
    ("line", "broken", "told"),
    [
        ("conf|enabled = 1\n", "conf|enabled = 0\n", "switched off: enabled"),
        ("plugin|/usr/lib/python3.9/site-packages/dnf-plugins/versionlock.py\n", "", "versionlock is not installed"),
        ("conf|[main]\n", "dnf|[main]\ndnf|plugins=0\nconf|[main]\n", "switched off: plugins"),
    ],
)
def test_32_locks_that_do_not_lock(line: str, broken: str, told: str) -> None:
    whole = rpm(EL) + el_fabric()
    assert line in whole
    found = caught_on(
        "EL",
        "32",
        "nvidia_driver.held",
        along=["fabric_manager.held", *["nvidia_driver.holdable"] * ("switched off" in told)],
        packages=whole.replace(line, broken),
        package_locking="redhat|\n" + PLUGIN.replace(line, broken),
        fabric_packages=(PLUGIN + el_fabric()).replace(line, broken),
    )
    assert told in found["nvidia_driver.held"].found
    moved = whole.replace(f"rpm|libnvidia-ml|3|{VERSION}", f"rpm|libnvidia-ml|3|{NEW}")
    caught_on(
        "EL",
        "32",
        "nvidia_driver.packages",
        "nvidia_driver.user_space",
        along=["nvidia_driver.held"],
        packages=moved,
        driver_libraries=f"/usr/lib64/libcuda.so.{VERSION}\n/usr/lib64/libnvidia-ml.so.{NEW}\n",
    )


def test_33_cuda_brings_another_driver() -> None:
    other = f"ii |nvidia-dkms-580-open|{NVIDIAS}|nvidia-graphics-drivers-580\n"
    told = caught_on(
        "Ubuntu",
        "33",
        "nvidia_driver.source",
        packages=dpkg(UBUNTUS) + ubuntus_fabric() + other,
    )
    assert f"nvidia-dkms-580-open {NVIDIAS}" in told["nvidia_driver.source"].found
    toolkit = HostSpec(name="gpu1", capabilities={"cuda_toolkit": CudaToolkit(versions=("12.4",))})
    host: dict[str, Output | str] = {"nvidia_functions": H100}
    meta = cuda_host.packages("hi ", "toolkit", **cuda_host.ONE) + "ii |cuda|12.4.1-1|cuda\n"
    told = caught(
        "33",
        "cuda_toolkit.metapackages",
        base=host,
        asked=toolkit,
        cuda_packages=meta,
    )
    assert "cuda " in told["cuda_toolkit.metapackages"].found


def test_34_the_retired_key_is_still_trusted() -> None:
    told = caught_on("EL", "34", "host.package_sources", repositories=NVIDIAS_SOURCE + "@rpmkey 7fa2af80-576db785\n")
    assert "NVIDIA replaced by 3BF863CC and D42D0685" in told["host.package_sources"].found


def test_35_dcgm_does_not_know_the_drivers_cuda() -> None:
    plain: dict[str, Output | str] = {"nvidia_functions": H100}
    moved: dict[str, Any] = {"driver_libraries": cuda_host.DRIVER}
    dcgm = HostSpec(name="gpu1", capabilities={"dcgm": Dcgm()})
    told = caught("35", "dcgm.version", along=["dcgm.leftovers"], base=plain, asked=dcgm, **moved)
    assert "datacenter-gpu-manager-4-cuda13" in told["dcgm.version"].found
    three = judged(HostSpec(name="gpu1", capabilities={"dcgm": Dcgm(version="3")}), **plain, **moved)
    assert three["dcgm.driver"].status == "fail"
    assert 'version: "4"' in three["dcgm.driver"].fix


def test_36_a_vgpu_needs_its_own_driver_and_a_licence() -> None:
    guest = {name: text for name, text in vgpu_host.GOOD.items() if name not in ("clock", "contents")}
    plain = judged(HostSpec(name="gpu1", capabilities={"nvidia_driver": NvidiaDriver()}), **guest)
    assert plain["nvidia_driver.machine_vgpu"].status == "fail", plain["nvidia_driver.machine_vgpu"]
    assert "vgpu_guest" in plain["nvidia_driver.machine_vgpu"].fix
    licensed = HostSpec(name="gpu1", capabilities={"vgpu_guest": VgpuGuest()})
    caught("36", "vgpu_guest.branch", base=guest, asked=licensed, driver_libraries="/usr/lib/libcuda.so.550.127.05\n")
    told = caught(
        "36", "vgpu_guest.licensed", base=guest, asked=licensed, vgpu_licences=vgpu_host.licence("Unlicensed")
    )
    assert "Unlicensed" in told["vgpu_guest.licensed"].found


def test_37_an_ended_branch_is_a_stub() -> None:
    names = [line.split("|")[1] for line in dpkg(UBUNTUS_OLD).splitlines() if "|nvidia-firmware" not in line]
    rows = [
        f" {name.replace('-570-', '-550-')} | {UBUNTUS_OLD} | http://mirror.example/ubuntu noble\n" for name in names
    ]
    told = caught_on(
        "Ubuntu",
        "37",
        "nvidia_driver.resolvable",
        along=["nvidia_driver.packages"],
        driver=NvidiaDriver(version="550", kernel_modules="open"),
        package_index=str(HOSTS["Ubuntu"]["package_index"]) + "".join(rows),
    )
    assert '"550"' in told["nvidia_driver.resolvable"].found
