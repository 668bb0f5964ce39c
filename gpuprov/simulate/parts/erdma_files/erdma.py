#!/usr/bin/python3
"""gpuprov simulation, in a container: an eRDMA function, and what the driver would show of it in sysfs while it is "loaded".

Verbs: boot (the function and its interface, and the driver if modules-load.d names it), load [modprobe's words], unload.
"""

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

RUN = Path("/run/gpuprov-sim/erdma")
SYS = Path("/sys")
ADDRESS = "0002:00:06.0"
NETDEV, MAC, IPV4 = "eth1", "02:16:3e:00:45:01", "192.168.45.10/24"
GUID = "0016:3eff:fe00:4501"
BIND, PRIVATE, RECURSIVE = 0x1000, 0x40000, 0x4000
FUNCTION = {"vendor": "0x1ded", "device": "0x107f", "subsystem_vendor": "0x1ded", "subsystem_device": "0x107f",
            "class": "0x020000", "numa_node": "0", "enable": "1", "revision": "0x01"}  # fmt: skip
OTHERS = {
    "legacy_mode": "N",
    "reserve_ports_base": "30608",
    "vector_num": "0",
    "default_cc": "-1",
    "rand_qpn": "N",
    "wwi_perf": "N",
}
"""The other parameters of Alibaba's driver 0.2.37, with values of the picture's own where the source has none."""


def main(verb: str, words: list[str]) -> None:
    if verb == "boot":
        boot()
    elif verb == "load":
        load(words)
    elif verb == "unload":
        unload()
    else:
        sys.exit("usage: erdma boot | load [WORD...] | unload")


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text + "\n")


def bind(source: Path, target: Path) -> None:
    """`mount --rbind`, kept from spreading to other places."""
    libc = ctypes.CDLL(None, use_errno=True)
    for coming, flags in ((os.fsencode(source), BIND | RECURSIVE), (None, PRIVATE | RECURSIVE)):
        if libc.mount(coming, os.fsencode(target), None, flags, None) != 0:
            sys.exit(f"{target}: {os.strerror(ctypes.get_errno())}")


def cover(place: Path, hull: Path, ours: set[str]) -> None:
    """Hang `hull` over a folder of sysfs, whose folders are bound into it, but for ours."""
    if hull.exists() and os.path.samefile(hull, place):
        return
    for folder in sorted(place.iterdir()):
        mine = hull / folder.name
        if folder.is_dir() and folder.name not in ours and not mine.exists():
            mine.mkdir(parents=True)
            bind(folder, mine)
    for name in ours:
        (hull / name).mkdir(parents=True, exist_ok=True)
    bind(hull, place)


def boot() -> None:
    function = RUN / "pci" / ADDRESS
    write(function, FUNCTION)
    (function / "config").write_bytes(bytes.fromhex("ed1d7f10") + bytes(252))
    shown = SYS / "bus/pci/devices"
    link = shown / ADDRESS
    if not link.is_symlink():
        link.symlink_to(function)
    cover(SYS / "module", RUN / "module", set())
    classes = {"infiniband", "infiniband_verbs"}
    if not all(os.access(SYS / "class" / name, os.W_OK) for name in classes):
        cover(SYS / "class", RUN / "class", classes)
    if not (SYS / "class/net" / NETDEV).exists():
        made = ["ip", "link", "add", NETDEV, "address", MAC, "type"]
        # A kernel may lack dummy interfaces; containers always have veth pairs.
        if subprocess.run([*made, "dummy"], capture_output=True, check=False).returncode != 0:
            subprocess.run([*made, "veth", "peer", "name", "sw-erdma"], check=True)
            subprocess.run(["ip", "link", "set", "sw-erdma", "mtu", "9000", "up"], check=True)
        subprocess.run(["ip", "link", "set", NETDEV, "mtu", "1500", "up"], check=True)
        subprocess.run(["ip", "address", "add", IPV4, "dev", NETDEV], check=True)
    files = [
        file
        for folder in ("/etc/modules-load.d", "/usr/lib/modules-load.d")
        for file in sorted(Path(folder).glob("*.conf"))
    ]
    if any("erdma" in file.read_text().split() for file in files) and kernel_with_module():
        load([])


def said(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else ""


def kernel_with_module() -> str:
    """The newest kernel whose modules are here; empty if it has no erdma."""
    kernels = said("sh", "-c", "ls -d /lib/modules/*/build | cut -d/ -f4 | sort -V").split()
    return kernels[-1] if kernels and said("modinfo", "-k", kernels[-1], "-n", "erdma").strip() else ""


def load(words: list[str]) -> None:
    if (SYS / "module/erdma").exists():
        return
    kernel = kernel_with_module()
    if not kernel:
        sys.exit("modprobe: FATAL: Module erdma not found.")
    known = {line.split(":")[0] for line in said("modinfo", "-k", kernel, "-F", "parm", "erdma").splitlines()}
    values = {}
    if "compat_mode" in known:
        default = said("modinfo", "-k", kernel, "-F", "gpuprov_default", "erdma").strip().rpartition("=")[2]
        values = {**OTHERS, "compat_mode": default or "N"}
    given = [
        line.split()[2:] for line in said("/usr/sbin/modprobe", "-c").splitlines() if line.startswith("options erdma ")
    ]
    for word in [*(one for line in given for one in line), *words]:
        name, equals, value = word.partition("=")
        if equals and name in values:
            values[name] = shown(value, values[name])
    folder = RUN / "module/erdma"
    write(folder, {"refcnt": "0", **{f"parameters/{name}": value for name, value in values.items()}})
    (folder / "holders").mkdir(exist_ok=True)
    source = said("modinfo", "-k", kernel, "-F", "srcversion", "erdma").strip()
    if source:
        write(folder, {"srcversion": source})
    device(compat=values.get("compat_mode") == "Y")


def shown(value: str, before: str) -> str:
    """As the kernel shows a parameter's value; one that it does not take leaves the parameter as it was."""
    if before in ("Y", "N"):
        first = value[:1].lower()
        return "Y" if first in ("y", "1") else "N" if first in ("n", "0") else before
    try:
        return str(int(value, 0))
    except ValueError:
        return before


def device(*, compat: bool) -> None:
    function, place = RUN / "pci" / ADDRESS, SYS / "class"
    drivers = RUN / "drivers/erdma"
    drivers.mkdir(parents=True, exist_ok=True)
    (function / "driver").symlink_to(drivers)
    four = "0000:0000:0000:0000:0000:ffff:c0a8:2d0a"
    local = "fe80:0000:0000:0000:" + GUID
    gids = {0: local, 1: four} if compat else {0: "0216:3e00:4501:0000:0000:0000:0000:0000"}
    ports = {f"ports/1/gids/{index}": gid for index, gid in gids.items()}
    if compat:
        ports |= {f"ports/1/gid_attrs/types/{index}": "RoCE v2" for index in gids}
        ports |= {f"ports/1/gid_attrs/ndevs/{index}": NETDEV for index in gids}
    files = {"node_type": "1: CA" if compat else "4: RNIC", "node_guid": GUID, "fw_ver": "0.2.0", "node_desc": "gpuprov stand-in",
             "ports/1/state": "4: ACTIVE", "ports/1/phys_state": "5: LinkUp", "ports/1/link_layer": "Ethernet",
             "ports/1/rate": "100 Gb/sec (4X EDR)", "ports/1/lid": "0x0", "ports/1/sm_lid": "0x0",
             "ports/1/hw_counters/hw_tx_bytes_cnt": "0", "ports/1/hw_counters/hw_rx_bytes_cnt": "0"}  # fmt: skip
    folder = place / "infiniband/erdma_0"
    write(folder, files | ports)
    (folder / "device").symlink_to(function)
    write(place / "infiniband_verbs/uverbs0", {"ibdev": "erdma_0", "abi_version": "1"})
    node = Path("/dev/infiniband/uverbs0")
    node.parent.mkdir(exist_ok=True)
    if not node.exists():
        os.mknod(node, 0o020666, os.makedev(1, 3))


def unload() -> None:
    if not (SYS / "module/erdma").exists():
        sys.exit("rmmod: ERROR: Module erdma is not currently loaded")
    if said("find", "/proc", "-maxdepth", "3", "-path", "*/fd/*", "-lname", "/dev/infiniband/uverbs0"):
        sys.exit("rmmod: ERROR: Module erdma is in use")
    for folder in (RUN / "module/erdma", SYS / "class/infiniband/erdma_0", SYS / "class/infiniband_verbs/uverbs0"):
        shutil.rmtree(folder, ignore_errors=True)
    (RUN / "pci" / ADDRESS / "driver").unlink(missing_ok=True)
    Path("/dev/infiniband/uverbs0").unlink(missing_ok=True)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "", sys.argv[2:])
