#!/usr/bin/python3
"""gpuprov simulation, in a container: a cloud's RDMA functions, and what sysfs would show while their driver is
"loaded"."""

import ctypes
import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

RUN = Path("/run/gpuprov-sim/cloud-rdma")
TOLD = Path("/usr/lib/gpuprov-sim/cloud-rdma.json")
SYS = Path("/sys")
NVIDIA = Path("/proc/driver/nvidia/version")
NODES = Path("/dev/infiniband")
ETC, USR = Path("/etc"), Path("/usr")
MODPROBE = Path("/usr/sbin/modprobe")
CLASSES = ("infiniband", "infiniband_verbs")
BIND, PRIVATE, RECURSIVE = 0x1000, 0x40000, 0x4000
Told = dict[str, Any]


def main(verb: str, words: list[str]) -> None:
    config: Told = json.loads(TOLD.read_text())
    if verb == "boot":
        boot(config)
    elif verb == "load":
        load(config, words)
    elif verb == "own":
        show(config, {})
    elif verb == "unload":
        unload(config)
    elif verb == "unbind" and len(words) == 1:
        unbind(config, words[0])
    else:
        sys.exit("usage: cloud-rdma boot | load [WORD...] | own | unload | unbind ADDRESS")


def write(folder: Path, files: dict[str, str]) -> None:
    """Write each file as one line; a configuration space as its 4096 bytes."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        content = text.ljust(4096, "\0") if name == "config" else f"{text}\n"
        (folder / name).write_bytes(content.encode("latin-1"))


def writable(folder: Path) -> bool:
    """True if the folder exists and is not in the kernel's own sysfs, where no folder can be made."""
    try:
        (folder / ".gpuprov-sim").mkdir()
    except OSError:
        return False
    (folder / ".gpuprov-sim").rmdir()
    return True


def bind(source: Path, target: Path) -> None:
    """`mount --rbind` without propagation to other mounts."""
    libc = ctypes.CDLL(None, use_errno=True)
    for coming, flags in ((os.fsencode(source), BIND | RECURSIVE), (None, PRIVATE | RECURSIVE)):
        if libc.mount(coming, os.fsencode(target), None, flags, None) != 0:
            sys.exit(f"{target}: {os.strerror(ctypes.get_errno())}")


def cover(place: Path, hull: Path, ours: set[str]) -> None:
    """Mount `hull` over a sysfs folder; the folder's own entries are bind-mounted into it, except ours."""
    if hull.exists() and os.path.samefile(hull, place):
        return
    for folder in sorted(place.iterdir()):
        target = hull / folder.name
        if folder.is_dir() and folder.name not in ours and not target.exists():
            target.mkdir(parents=True)
            bind(folder, target)
    for name in ours:
        (hull / name).mkdir(parents=True, exist_ok=True)
    bind(hull, place)


def boot(config: Told) -> None:
    for function in config["functions"]:
        folder = RUN / "pci" / function["address"]
        write(folder, function["files"])
        link = SYS / "bus/pci/devices" / function["address"]
        if not link.is_symlink():
            link.symlink_to(folder)
    cover(SYS / "module", RUN / "module", set())
    ours = {*CLASSES, *(name.partition("/")[0] for name in config["classes"])}
    if not all(writable(SYS / "class" / name) for name in ours):
        cover(SYS / "class", RUN / "class", ours)
    write(SYS / "class", config["classes"])
    if config["netdev"]:
        interface(config["netdev"])
    if at_boot(config["module"]) and kernel_with(config["module"]):
        load(config, [])


def interface(netdev: dict[str, str]) -> None:
    """Create a network interface without a link."""
    name = netdev["name"]
    if (SYS / "class/net" / name).exists():
        return
    made = ["ip", "link", "add", name, "address", netdev["mac"], "type"]
    # A kernel may lack dummy interfaces; containers always have veth pairs.
    if subprocess.run([*made, "dummy"], capture_output=True, check=False).returncode != 0:
        subprocess.run([*made, "veth", "peer", "name", netdev["peer"]], check=True)
        subprocess.run(["ip", "link", "set", netdev["peer"], "mtu", "9000", "up"], check=True)
    subprocess.run(["ip", "link", "set", name, "mtu", "1500", "up"], check=True)
    subprocess.run(["ip", "address", "add", netdev["address"], "dev", name], check=True)


def at_boot(module: str) -> bool:
    """True if a modules-load list names the module."""
    files = [
        file
        for folder in (ETC / "modules-load.d", USR / "lib/modules-load.d")
        for file in sorted(folder.glob("*.conf"))
    ]
    return any(module in file.read_text().split() for file in files)


def read_output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else ""


def kernel_with(module: str) -> str:
    """Return the newest kernel with modules here; empty if it does not have this module."""
    kernels = read_output("sh", "-c", "ls -d /lib/modules/*/build | cut -d/ -f4 | sort -V").split()
    return kernels[-1] if kernels and read_output("modinfo", "-k", kernels[-1], "-n", module).strip() else ""


def load(config: Told, words: list[str]) -> None:
    module: str = config["module"]
    if (SYS / "module" / module).exists():
        return
    kernel = kernel_with(module)
    if not kernel:
        sys.exit(f"modprobe: FATAL: Module {module} not found.")

    def field(name: str) -> str:
        return read_output("modinfo", "-k", kernel, "-F", name, module).strip()

    known = {line.split(":")[0] for line in field("parm").splitlines()}
    values = {name: value for name, value in config["parameters"].items() if name in known}
    default, _, value = field("gpuprov_default").partition("=")
    values |= {default: value} if default else {}
    options = [line.split() for line in read_output(str(MODPROBE), "-c").splitlines()]
    given = [word for line in options if line[:2] == ["options", module] for word in line[2:]]
    for word in [*given, *words]:
        name, equals, value = word.partition("=")
        if equals and name in values:
            values[name] = shown(value, values[name])
    marks = {name: field(name) for name in ("srcversion", "version")}
    show(
        config, {f"parameters/{name}": value for name, value in values.items()} | {k: v for k, v in marks.items() if v}
    )


def shown(value: str, before: str) -> str:
    """Return the value as the kernel shows it; a value it rejects leaves the parameter unchanged."""
    if before in ("Y", "N"):
        first = value[:1].lower()
        return "Y" if first in ("y", "1") else "N" if first in ("n", "0") else before
    try:
        return str(int(value, 0))
    except ValueError:
        return before


def show(config: Told, files: dict[str, str]) -> None:
    """Show the module as loaded, with these files in its folder, and each function's device."""
    folder = SYS / "module" / config["module"]
    write(folder, {"refcnt": "0", **files})
    (folder / "holders").mkdir(exist_ok=True)
    mode: Told = next((entry for entry in config["modes"] if holds(entry["when"], files)), {"files": {}})
    for number, function in enumerate(config["functions"]):
        here = RUN / "pci" / function["address"]
        drivers = RUN / "drivers" / config["module"]
        drivers.mkdir(parents=True, exist_ok=True)
        (here / "driver").symlink_to(drivers)
        # The kernel's own driver has no version, and does without such a file.
        if config["p2p"] and "version" in files:
            write(here, {"p2p": "NVIDIA" if NVIDIA.exists() else ""})
        device = SYS / "class/infiniband" / function["device"]
        write(device, {**function["shown"], **mode["files"]})
        (device / "device").symlink_to(here)
        write(SYS / f"class/infiniband_verbs/uverbs{number}", {"ibdev": function["device"], "abi_version": "1"})
        node = NODES / f"uverbs{number}"
        node.parent.mkdir(exist_ok=True)
        if not node.exists():
            os.mknod(node, 0o020666, os.makedev(1, 3))


def holds(when: str, files: dict[str, str]) -> bool:
    """True if the parameter has this value, `NAME=VALUE`; always True for an empty string."""
    name, _, value = when.partition("=")
    return not when or files.get(f"parameters/{name}") == value


def held() -> bool:
    """True if a process has a device open. Ignores processes that end meanwhile."""
    for process in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            for opened in os.scandir(f"/proc/{process}/fd"):
                with suppress(OSError):
                    if os.readlink(opened.path).startswith(f"{NODES}/uverbs"):
                        return True
    return False


def unload(config: Told) -> None:
    module = config["module"]
    if not (SYS / "module" / module).exists():
        sys.exit(f"rmmod: ERROR: Module {module} is not currently loaded")
    if held():
        sys.exit(f"rmmod: ERROR: Module {module} is in use")
    shutil.rmtree(SYS / "module" / module, ignore_errors=True)
    for function in config["functions"]:
        unbind(config, function["address"])


def unbind(config: Told, address: str) -> None:
    """Unbind a function from its driver; do nothing if it has none."""
    addresses = [function["address"] for function in config["functions"]]
    if address not in addresses:
        sys.exit(f"{address} is not one of {' '.join(addresses)}")
    number = addresses.index(address)
    device = config["functions"][number]["device"]
    for folder in (SYS / "class/infiniband" / device, SYS / f"class/infiniband_verbs/uverbs{number}"):
        shutil.rmtree(folder, ignore_errors=True)
    for file in (RUN / "pci" / address / "driver", RUN / "pci" / address / "p2p", NODES / f"uverbs{number}"):
        file.unlink(missing_ok=True)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "", sys.argv[2:])
