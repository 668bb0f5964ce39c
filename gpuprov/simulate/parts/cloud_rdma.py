"""A cloud's RDMA functions on a simulated container: PCI functions, and what their driver shows in sysfs while it is "loaded".

A container loads no module. `modprobe` and `rmmod` of the one driver are answered by a program that shows what a loaded driver would
show, by the parameters that modprobe's options and the module's own defaults give it; every other module is left to the real programs.
Which clouds there are, and what theirs look like, is in `erdma` and `efa`.
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
BEFORE = ("modprobe", "rmmod", "modinfo")
"""Stand before the real programs of these names."""


class Function(msgspec.Struct, frozen=True, kw_only=True):
    """A PCI function: its files; and the name of its RDMA device, with what that shows whatever the mode of the driver is."""

    address: str
    files: dict[str, str]
    device: str
    shown: dict[str, str]


class Mode(msgspec.Struct, frozen=True, kw_only=True):
    """What devices show, too, while a parameter of the driver has this value, `NAME=VALUE`; empty: always."""

    when: str = ""
    files: dict[str, str]


class Netdev(msgspec.Struct, frozen=True, kw_only=True):
    """A network interface; `peer`: its other end, where the kernel has no dummy interfaces."""

    name: str
    mac: str
    address: str
    peer: str


class Cloud(msgspec.Struct, frozen=True, kw_only=True):
    """`module`: the driver's name. `parameters`: what they are by default, unless the module on disk says another (modinfo field
    gpuprov_default); one that it does not take is not shown. `modes`: the first that holds counts. `p2p`: a driver with a version
    shows a provider of GPU memory in a file of that name. `classes`: more files below /sys/class."""

    module: str
    functions: tuple[Function, ...]
    parameters: dict[str, str] = {}
    modes: tuple[Mode, ...] = ()
    p2p: bool = False
    classes: dict[str, str] = {}
    netdev: Netdev | None = None


def pci_files(address: str, identifier: str, node: int) -> dict[str, str]:
    """What sysfs has of a function of this PCI id (`1d0f:efa2`), a line each; of its configuration space the bytes."""
    device = PciDevice("hca", 0, address, identifier, identifier, ETHERNET_CLASS, node, "")
    return {
        name: (content.rstrip(b"\0") if name == "config" else content.rstrip(b"\n")).decode("latin-1")
        for name, content in sysfs.files(device).items()
    }


def part(cloud: Cloud) -> Part:
    """The functions, and the programs that stand before those of kmod."""
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
