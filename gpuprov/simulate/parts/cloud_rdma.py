"""A cloud's RDMA functions on a simulated container: PCI functions, and their driver's files in sysfs while it is
"loaded".

A container loads no module. For this one driver, a program in place of `modprobe` and `rmmod` shows what a loaded
driver would show, with the parameters from modprobe's options and the module's own defaults; the real programs handle
every other module. `erdma` and `efa` define the clouds.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from gpuprov.simulate.devices import ETHERNET_CLASS, PciDevice
from gpuprov.simulate.parts.base import PROGRAMS, File, Part
from gpuprov.simulate.parts.silicon_files import sysfs

FOLDER = Path(__file__).with_name("cloud_rdma_files")
UNIT = "gpuprov-sim-cloud-rdma.service"
PROGRAM, TOLD = f"{PROGRAMS}/cloud-rdma", f"{PROGRAMS}/cloud-rdma.json"
# Programs that a wrapper on PATH precedes.
BEFORE = ("modprobe", "rmmod", "modinfo")


class Function(msgspec.Struct, frozen=True, kw_only=True):
    """A PCI function: its files, and the name of its RDMA device with the files it shows in every mode of the
    driver."""

    address: str
    files: dict[str, str]
    device: str
    shown: dict[str, str]


class Mode(msgspec.Struct, frozen=True, kw_only=True):
    """Further files of devices while a parameter of the driver has this value, `NAME=VALUE`; empty: always."""

    when: str = ""
    files: dict[str, str]


class Netdev(msgspec.Struct, frozen=True, kw_only=True):
    """A network interface."""

    name: str
    mac: str
    address: str
    # Its other end, if the kernel has no dummy interfaces.
    peer: str


class Cloud(msgspec.Struct, frozen=True, kw_only=True):
    """`module`: the driver's name. `parameters`: their defaults, unless the module on disk gives another (modinfo field
    gpuprov_default); a parameter that the module does not take is not shown. `modes`: the first match applies. `p2p`: a
    driver with a version shows a provider of GPU memory in a file of that name. `classes`: more files below /sys/class.
    """

    module: str
    functions: tuple[Function, ...]
    parameters: dict[str, str] = {}
    modes: tuple[Mode, ...] = ()
    p2p: bool = False
    classes: dict[str, str] = {}
    netdev: Netdev | None = None


def pci_files(address: str, identifier: str, node: int) -> dict[str, str]:
    """Return the sysfs files of a function of this PCI id (`1d0f:efa2`), one line each; its configuration space as
    bytes."""
    device = PciDevice("hca", 0, address, identifier, identifier, ETHERNET_CLASS, node, "")
    return {
        name: (content.rstrip(b"\0") if name == "config" else content.rstrip(b"\n")).decode("latin-1")
        for name, content in sysfs.files(device).items()
    }


def part(cloud: Cloud) -> Part:
    """Return the functions, and the programs that precede those of kmod."""
    before = {name: (FOLDER / name).read_text(encoding="utf-8").replace("@module@", cloud.module) for name in BEFORE}
    return Part(
        files={
            PROGRAM: File(FOLDER / "cloud_rdma_container.py", 0o755),
            TOLD: File(msgspec.json.encode(cloud)),
            **{f"/usr/local/sbin/{name}": File(text.encode(), 0o755) for name, text in before.items()},
            f"/etc/systemd/system/{UNIT}": File(FOLDER / UNIT),
        },
        units=(UNIT,),
    )
