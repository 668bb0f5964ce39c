#!/usr/bin/python3
"""gpuprov simulation, in a container: mounts the tree that `bus` made into /sys, and makes the network interfaces of
RoCE ports.

Mounts one folder of /run over each of /sys/devices, /sys/bus/pci/devices, /sys/module, and the classes of RDMA devices.
If the machine's kernel has no such class, there is no folder to cover, and all of /sys/class is covered. The machine's
own folders are bind-mounted into the covering folder, so that the rest of sysfs stays as it is. Running it again
changes nothing.
"""

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

RUN = Path("/run/gpuprov-sim")
TREE = RUN / "sys"
TOLD = Path("/usr/lib/gpuprov-sim/sysfs.json")
SYS = Path("/sys")
CLASSES = ("infiniband", "infiniband_verbs", "infiniband_mad")
BIND, PRIVATE, RECURSIVE = 0x1000, 0x40000, 0x4000


def main() -> None:
    cover(SYS / "devices", TREE / "devices", {})
    bind(TREE / "bus/pci/devices", SYS / "bus/pci/devices")
    if (TREE / "class/infiniband").exists():
        classes = {name: TREE / "class" / name for name in CLASSES}
        for folder in classes.values():
            folder.mkdir(exist_ok=True)
        if all((SYS / "class" / name).exists() for name in CLASSES):
            for name, folder in classes.items():
                bind(folder, SYS / "class" / name)
        else:
            cover(SYS / "class", RUN / "class", classes)
        known(SYS / "module", TREE / "module")
    functions = json.loads(TOLD.read_text())["functions"]
    netdevs = [function["rdma"]["netdev"] for function in functions if function["rdma"] and function["rdma"]["netdev"]]
    addresses = {netdev["mac"]: netdev["address"] for netdev in netdevs}
    folders = {place.name: place.resolve() for place in sorted((TREE / "class/net").glob("*"))}
    for gone in {place.name for place in (RUN / "net").glob("*")} - folders.keys():
        subprocess.run(["umount", "--lazy", RUN / "net" / gone], check=True)
        (RUN / "net" / gone).rmdir()
        subprocess.run(["ip", "link", "delete", gone], check=True)
    for name, folder in folders.items():
        interface(name, folder, addresses)


def known(place: Path, hull: Path) -> None:
    """Link the machine's modules beside ours. They are many, so one folder is bound, with links into it."""
    if os.path.samefile(place, hull):
        return
    below = RUN / "module"
    below.mkdir(exist_ok=True)
    bind(place, below)
    for folder in below.iterdir():
        if not (hull / folder.name).exists():
            (hull / folder.name).symlink_to(folder)
    bind(hull, place)


def cover(place: Path, hull: Path, ours: Mapping[str, Path]) -> None:
    """Mount `hull` over a sysfs folder; the folder's own entries are bind-mounted into it, except those that `hull` has
    itself, and `ours`."""
    if hull.exists() and os.path.samefile(hull, place):
        return
    hull.mkdir(exist_ok=True)
    for folder in [
        *(path for path in sorted(place.iterdir()) if path.is_dir() and path.name not in ours),
        *ours.values(),
    ]:
        target = hull / folder.name
        if not target.exists():
            target.mkdir()
            bind(folder, target)
    bind(hull, place)


def bind(source: Path, target: Path) -> None:
    """`mount --rbind` without propagation to other mounts; does nothing if already mounted."""
    if os.path.samefile(source, target):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    for coming, flags in ((os.fsencode(source), BIND | RECURSIVE), (None, PRIVATE | RECURSIVE)):
        if libc.mount(coming, os.fsencode(target), None, flags, None) != 0:
            sys.exit(f"{target}: {os.strerror(ctypes.get_errno())}")


def interface(name: str, folder: Path, addresses: Mapping[str, str]) -> None:
    """Create a network interface without a link, shown under its PCI function: our files, and the kernel's own for the
    rest."""
    virtual = SYS / "devices/virtual/net" / name
    # The folder is seen at two places, so that its links cannot be relative ones.
    (folder / "device").unlink(missing_ok=True)
    (folder / "device").symlink_to(SYS / folder.parents[1].relative_to(TREE))
    mac = (folder / "address").read_text().strip()
    if not virtual.exists():
        made = ["ip", "link", "add", name, "address", mac, "type"]
        # A kernel may lack dummy interfaces; containers always have veth pairs.
        if subprocess.run([*made, "dummy"], capture_output=True, check=False).returncode != 0:
            other = f"sw{name[2:]}"
            subprocess.run([*made, "veth", "peer", "name", other], check=True)
            subprocess.run(["ip", "link", "set", other, "up"], check=True)
        subprocess.run(["ip", "link", "set", name, "up"], check=True)
        subprocess.run(["ip", "address", "add", addresses[mac], "dev", name], check=True)
    if os.path.samefile(folder, virtual):
        return
    live = RUN / "net" / name
    live.mkdir(parents=True, exist_ok=True)
    bind(virtual, live)
    for entry in live.iterdir():
        target = folder / entry.name
        if not target.exists() and not target.is_symlink():
            target.symlink_to(entry)
    bind(folder, virtual)


if __name__ == "__main__":
    main()
