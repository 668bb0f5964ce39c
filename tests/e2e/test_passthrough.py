"""GPUs lent to virtual machines, on a machine with an IOMMU (QEMU's of Intel): bound to the kernel's own vfio-pci
before udev loads a driver, one of a group that is incomplete refused, one that a program has never moved, and given
back to their driver.

The functions are QEMU's network cards, real to kernel and IOMMU; what sysfs says of their maker and class is NVIDIA's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from gpuprov.simulate import hosts, inventory, machine, qemu
from gpuprov.simulate.description import Description
from gpuprov.simulate.parts.base import text
from tests.e2e.booted import Booted, booted
from tests.e2e.test_secure_boot import NETWORK

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
NAME = "e2e-passthrough1"
DESCRIPTION = Description(kind="machine", memory=1024)
FIRST, SECOND, BRIDGED, BESIDE = "0000:00:10.0", "0000:00:11.0", "0000:02:01.0", "0000:02:02.0"
BOARD = [
    *("-machine", "q35", "-device", "intel-iommu,intremap=off"),
    *("-device", "e1000e,addr=0x10,romfile=", "-device", "e1000e,addr=0x11,romfile="),
    *("-device", "pcie-root-port,id=above,chassis=1,addr=0x12", "-device", "pcie-pci-bridge,id=legacy,bus=above"),
    *("-device", "e1000,bus=legacy,addr=1,romfile=", "-device", "e1000,bus=legacy,addr=2,romfile="),
]
"""Behind a bridge to PCI, two functions share a group. Without remapping of interrupts, with which a kernel that is
emulated slowly does not find its timer. Debian's kernel has the IOMMU on by itself."""
NVIDIA = {"vendor": "0x10de", "device": "0x26b9", "class": "0x030200"}
MAKER = "/etc/maker"
UNIT = f"""[Unit]
DefaultDependencies=no
Before=gpuprov-passthrough.service

[Service]
Type=oneshot
ExecStart=/bin/sh -c 'for d in {FIRST} {SECOND} {BRIDGED}; do for f in {" ".join(NVIDIA)}; do \\
  mount --bind {MAKER}/$f /sys/bus/pci/devices/$d/$f; done; done'

[Install]
WantedBy=sysinit.target
"""
BOTH, ONE, NONE = ({"passthrough": {"gpus": named}, "reboot": "if-needed"} for named in ([FIRST, SECOND], [SECOND], []))
PATIENT = ("--timeout", "600")
"""Reading an emulated machine takes a minute where others work beside it."""
DRIVERS = "for d in {}; do l=$(readlink /sys/bus/pci/devices/$d/driver || true); echo ${{l##*/}}; done"
STARTED = "systemctl show -P ActiveEnterTimestampMonotonic"


@pytest.fixture(scope="module", name="host")
def _host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Booted]:
    with (
        booted(tmp_path_factory.mktemp("passthrough"), DESCRIPTION, NAME) as made,
        pytest.MonkeyPatch.context() as patch,
    ):
        files = {f"{MAKER}/{name}": text(f"{value}\n") for name, value in NVIDIA.items()}
        files |= {"/etc/systemd/network/05-q35.network": NETWORK, "/etc/systemd/system/maker.service": text(UNIT)}
        machine.write(NAME, hosts.archive(files))
        made.sh("systemctl enable maker 2>&1")
        patch.setattr(qemu, "board", lambda _firmware, _variables: BOARD)
        inventory.write([machine.refit(NAME, "bios")], made.folder / "inventory.yaml", DESCRIPTION)
        yield made


def drivers(host: Booted, *addresses: str) -> list[str]:
    return host.sh(DRIVERS.format(" ".join(addresses))).split()


def failing(told: Any) -> set[str]:
    return {row["check"] for row in told if row["status"] == "fail"}


def test_they_are_bound_by_the_boot_with_the_parameters_of_the_iommu(host: Booted) -> None:
    assert drivers(host, FIRST, SECOND) == ["e1000e", "e1000e"]
    code, told = host.gpuprov("verify", BOTH, *PATIENT)
    assert code == 1
    assert {"kernel.command_line", "passthrough.bound", "passthrough.enabled"} <= failing(told)
    code, told = host.gpuprov("apply", BOTH, "--yes")
    assert code == 0, told
    assert "intel_iommu=on" in host.sh("cat /proc/cmdline")
    assert drivers(host, FIRST, SECOND) == ["vfio-pci", "vfio-pci"]
    assert int(host.sh(f"{STARTED} gpuprov-passthrough")) <= int(host.sh(f"{STARTED} systemd-udev-trigger"))
    assert host.gpuprov("verify", BOTH, *PATIENT)[0] == 0
    code, told = host.gpuprov("apply", BOTH, "--yes")
    assert [each["state"] for each in told["hosts"]] == ["unchanged"]


def test_a_group_that_is_not_whole_is_refused(host: Booted) -> None:
    code, told = host.gpuprov("apply", {"passthrough": {"gpus": [BRIDGED]}}, "--yes")
    assert code == 3
    assert f"{BESIDE} (8086:100e) has e1000" in json.dumps(told)
    assert drivers(host, FIRST, BRIDGED, BESIDE) == ["vfio-pci", "e1000", "e1000"]


def test_what_a_program_has_is_not_moved_and_what_is_free_goes_back(host: Booted) -> None:
    group = host.sh(f"basename $(readlink /sys/bus/pci/devices/{FIRST}/iommu_group)").strip()
    host.sh(f"systemd-run --quiet --unit=guest sh -c 'exec 9<>/dev/vfio/{group}; exec sleep infinity'; sleep 1")
    code, told = host.gpuprov("apply", ONE, "--yes")
    assert code == 3
    assert f"{FIRST}: sleep (pid " in json.dumps(told)
    assert drivers(host, FIRST, SECOND) == ["vfio-pci", "vfio-pci"]
    host.sh("systemctl stop guest")
    code, told = host.gpuprov("apply", ONE, "--yes")
    assert code == 0, told
    assert drivers(host, FIRST, SECOND) == ["e1000e", "vfio-pci"]
    assert host.gpuprov("verify", ONE, *PATIENT)[0] == 0


def test_an_empty_list_takes_all_back_at_once(host: Booted) -> None:
    for spec, driver in ((NONE, "e1000e"), (BOTH, "vfio-pci")):
        code, told = host.gpuprov("apply", spec, "--yes")
        assert code == 0, told
        assert drivers(host, FIRST, SECOND) == [driver, driver]


def test_the_block_goes_and_the_next_boot_gives_all_back(host: Booted) -> None:
    without = {"kernel": {"sysctl": {"vm.swappiness": 10}}}
    _, told = host.gpuprov("plan", without, "--prune", *PATIENT)
    assert "passthrough" in json.dumps(told)
    code, told = host.gpuprov("apply", without, "--yes", "--prune")
    assert code == 0, told
    assert host.sh("ls /etc/gpuprov/passthrough.conf 2>/dev/null || true") == ""
    hosts.reboot(NAME)
    assert drivers(host, FIRST, SECOND) == ["e1000e", "e1000e"]
