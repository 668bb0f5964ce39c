"""A branch that has ended: in Ubuntu's archive its packages are there, in its version, and bring another branch's."""

from __future__ import annotations

from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from tests.capabilities.asking import H100, ask
from tests.capabilities.test_nvidia_driver_source import U580, UBUNTU, dpkg, madison

EMPTY = "535.309.01-0ubuntu0.24.04.2"
MODULES = ("nvidia-dkms-535-server", "nvidia-kernel-source-535-server", "nvidia-kernel-common-535-server")
MODULES_OPEN = ("nvidia-dkms-535-server-open", "nvidia-kernel-source-535-server-open", MODULES[2])
DEPENDS = "".join(f"depends|{n}|{EMPTY}|{n.replace('535', '580')}\n" for n in dict.fromkeys((*MODULES, *MODULES_OPEN)))


def test_it_is_not_offered() -> None:
    """https://packages.ubuntu.com/source/noble-updates/libs/nvidia-graphics-drivers-535-server"""
    index = madison(U580, EMPTY)
    wanted = NvidiaDriver(version="535", kernel_modules="open")
    there = {"os_release": UBUNTU, "packages": dpkg(U580), "nvidia_functions": H100}
    told = ask("nvidia_driver.resolvable", wanted, **there, package_index=index)
    assert told.status == "pass", "as its versions look"
    told = ask("nvidia_driver.resolvable", wanted, **there, package_index=index + DEPENDS)
    assert told.status == "fail"
    assert "is a transitional package there, for nvidia-kernel-common-580-server" in told.found
    assert "580.95.05" in told.fix


def test_what_it_left_on_a_host_is_no_driver() -> None:
    """unattended-upgrades has brought 580, and the packages of 535 are there still: 580 stays, they leave."""
    both = dpkg(U580) + dpkg(EMPTY, state="ii ")
    there = {"os_release": UBUNTU, "packages": both + DEPENDS, "package_index": madison(U580, EMPTY) + DEPENDS}
    told = ask("nvidia_driver.resolvable", NvidiaDriver(kernel_modules="open"), **there, nvidia_functions=H100)
    assert (told.status, told.version, told.installed) == ("pass", "580.95.05", "580.95.05")
    leaving = {change.name for change in told.changes if change.after == "removed"}
    assert {"nvidia-dkms-535-server-open", "nvidia-utils-535-server"} <= leaving
    assert not any("580" in name for name in leaving)
    del there["package_index"]
    wrong = ask("nvidia_driver.packages", NvidiaDriver(kernel_modules="open"), **there)
    assert (wrong.status, "nvidia-dkms-535-server-open" in wrong.found) == ("fail", True)
