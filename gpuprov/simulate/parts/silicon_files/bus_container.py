#!/usr/bin/python3
"""gpuprov simulation, in a container: mounts simulated PCI functions and RDMA devices into this container's /sys.

`bus boot [DRIVER]` lays everything out as after a boot; DRIVER is the driver that has bound the GPUs. `bus reload
[DRIVER]` changes only what faults, driver and packages affect and keeps what was written in the meantime, such as
settings of bridges; `bus refresh` does the same with the current driver; `bus forget acs|requests|roce` resets such
settings, as a reset of the functions does.

The machine's own sysfs stays in place for everything else: its folders are bind-mounted into the new /sys/devices and
/sys/class.
"""

import fcntl
import glob
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

RUN = Path("/run/gpuprov-sim")
TREE = RUN / "sys"
WRITTEN = RUN / "sys.json"
TOLD = Path("/usr/lib/gpuprov-sim/sysfs.json")
SHOW = Path("/usr/lib/gpuprov-sim/bus-show")
FAULTS = Path("/var/lib/gpuprov-sim/faults")
ETC = Path("/")
SYS = Path("/sys")
DEVICES = "bus/pci/devices"
LINK = "link: "  # what a link's content begins with
SIZE = 4096
ACS_CONTROL, DEVICE_CONTROL, LINK_STATUS = 0x106, 0x48, 0x52
NO_GID = ":".join(["0000"] * 8) + "\n"
FLAPS = {"link_downed": "14", "link_error_recovery": "3", "symbol_error": "120"}
LISTS = ("etc/modules", "etc/modules-load.d/*.conf", "usr/lib/modules-load.d/*.conf",
         "etc/rdma/modules/infiniband.conf", "etc/rdma/modules/roce.conf", "etc/rdma/modules/rdma.conf")  # fmt: skip
# Modules that udev loads for an HCA; other RDMA modules load only if a modules-load list names them.
BROUGHT = {"mlx5_core", "mlx5_ib", "ib_core", "ib_uverbs"}
# rdma-core names them for mlx5: https://github.com/linux-rdma/rdma-core kernel-boot
NAMED = {"ib_umad", "ib_ipoib", "rdma_ucm", "rdma_cm", "iw_cm", "ib_cm"}
Function = dict[str, Any]
Files = dict[str, str]


def main(verb: str, word: str = "") -> None:
    RUN.mkdir(parents=True, exist_ok=True)
    with (RUN / "bus.lock").open("w") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)
        run(verb, word)


def run(verb: str, word: str) -> None:
    if not (SYS / DEVICES).is_dir():
        sys.exit(f"{SYS / DEVICES}: this machine has no PCI bus to lay the simulated one over")
    config = json.loads(TOLD.read_text())
    desired = layout(config, planted(), word if verb in ("boot", "reload") else driver_now())
    if verb == "forget":
        forget(desired, word)
        return
    before = json.loads(WRITTEN.read_text()) if WRITTEN.exists() else {}
    write(before, desired, afresh=verb == "boot")
    WRITTEN.write_text(json.dumps(desired))
    subprocess.run([SHOW], check=True)


def planted() -> Files:
    """Return the active faults, with their parameters."""
    return {file.name: file.read_text().strip() for file in FAULTS.glob("*")}


def driver_now() -> str:
    """Return the driver that has bound the GPUs."""
    bound = [os.path.basename(os.readlink(link)) for link in glob.glob(f"{TREE}/{DEVICES}/*/driver")]
    return next((name for name in bound if name in ("nvidia", "nouveau")), "")


def layout(config: dict[str, Any], faults: Files, driver: str) -> Files:
    """Return every simulated file and link below /sys, by path, as the kernel would show it."""
    files: Files = {}
    numbers, loaded = iter(range(len(config["functions"]))), modules()
    for function in disturbed(config, faults):
        role, address, path = function["role"], function["address"], f"devices/{function['path']}"
        bound = {"gpu": driver, "nvswitch": "nvidia-nvswitch" if driver == "nvidia" else "", "bridge": "pcieport"}
        own = bound.get(role, "mlx5_core" if function["rdma"] else "")
        files[f"{DEVICES}/{address}"] = link(f"{DEVICES}/{address}", path)
        for name, content in function["files"].items():
            files[f"{path}/{name}"] = content.ljust(SIZE, "\0") if name == "config" else content
        files[f"{path}/local_cpulist"] = cpus(function["node"])
        files[f"{path}/uevent"] = uevent(function, own)
        files[f"{path}/subsystem"] = link(f"{path}/subsystem", "bus/pci")
        if own:
            # What begins with a dot is no function to lspci, which follows the link.
            files[f"{path}/driver"] = link(f"{path}/driver", f"{DEVICES}/.drivers/{own}")
            files[f"{DEVICES}/.drivers/{own}/uevent"] = ""
        if function["rdma"]:
            files |= rdma(function, path, next(numbers), loaded)
    if any(function["rdma"] for function in config["functions"]):
        files |= {f"module/{name}/refcnt": "1\n" for name in loaded if not foreign(name)}
    return files


def link(path: str, target: str) -> str:
    return LINK + os.path.relpath(target, os.path.dirname(path))


def cpus(node: int) -> str:
    """Return the processors in this NUMA node of the machine under the simulation; all processors if it has no such
    node."""
    for file in (f"/sys/devices/system/node/node{node}/cpulist", "/sys/devices/system/cpu/online"):
        if os.path.exists(file):
            return Path(file).read_text()
    return "0\n"


def uevent(function: Function, driver: str) -> str:
    texts = {name: content.strip().removeprefix("0x").upper() for name, content in function["files"].items()}
    lines = [f"DRIVER={driver}"] if driver else []
    lines += [f"PCI_CLASS={texts['class'].lstrip('0')}", f"PCI_ID={texts['vendor']}:{texts['device']}",
              f"PCI_SUBSYS_ID={texts['subsystem_vendor']}:{texts['subsystem_device']}",
              f"PCI_SLOT_NAME={function['address']}", f"MODALIAS={function['files']['modalias'].strip()}"]  # fmt: skip
    return "\n".join(lines) + "\n"


def place_name(address: str) -> str:
    """Return the name that udev and rdma-core derive from a device's place: P1p20s0."""
    domain, bus, slot = (int(part, 16) for part in address.partition(".")[0].split(":"))
    return (f"P{domain}" if domain else "") + f"p{bus}s{slot}"


def rdma(function: Function, path: str, number: int, loaded: set[str]) -> Files:
    """Return a function's RDMA device, its device nodes for verbs and management datagrams, and its network
    interface."""
    adapter, ofed = function["rdma"], bool(glob.glob(str(ETC / "usr/src/ofa_kernel/*")))
    place = place_name(function["address"])
    name, netdev = adapter["prefix"] + place, f"en{place}np0" if adapter["netdev"] else ""
    folder = f"{path}/infiniband/{name}"
    files = {f"{folder}/{key}": value for key, value in adapter["files"].items()}
    files |= {f"{folder}/{key}": value for key, value in (adapter["ofed"] if ofed else {}).items()}
    groups: list[tuple[str, str, Files]] = [("infiniband", name, {})]
    groups.append(
        ("infiniband_verbs", f"uverbs{number}", {"ibdev": name, "abi_version": "1", "dev": f"231:{192 + number}"})
    )
    if "ib_umad" in loaded:
        groups.append(("infiniband_mad", f"umad{number}", {"ibdev": name, "port": "1", "dev": f"231:{number}"}))
        files["class/infiniband_mad/abi_version"] = "5"
    files["class/infiniband_verbs/abi_version"] = "6"
    for group, device, more in groups:
        where = f"{path}/{group}/{device}"
        files |= {f"{where}/{key}": value for key, value in more.items()}
        files[f"{where}/device"] = link(f"{where}/device", path)
        files[f"{where}/subsystem"] = link(f"{where}/subsystem", f"class/{group}")
        files[f"class/{group}/{device}"] = link(f"class/{group}/{device}", where)
    if netdev:
        where = f"{path}/net/{netdev}"
        own = {"address": adapter["netdev"]["mac"], "type": "1", "speed": str(adapter["netdev"]["speed"])}
        own |= adapter["ofed_netdev"] if ofed else {}
        files |= {f"{where}/{key}": value for key, value in own.items()}
        files[f"{where}/device"] = link(f"{where}/device", path)
        files[f"class/net/{netdev}"] = link(f"class/net/{netdev}", where)
    ended = {
        key: value if value.startswith(LINK) or not value else value.rstrip("\n") + "\n" for key, value in files.items()
    }
    return {key: value.replace("@netdev@", netdev) for key, value in ended.items()}


def modules() -> set[str]:
    """Return the RDMA modules that a boot loads."""
    files = (file for pattern in LISTS for file in glob.glob(str(ETC / pattern)) if os.path.exists(file))
    named = {line.split()[0] for file in files for line in Path(file).read_text().splitlines() if line.strip()}
    return BROUGHT | NAMED & named


def foreign(module: str) -> bool:
    """True if the machine underneath has loaded the module; its own folder is shown then."""
    folder = TREE / "module" / module
    return folder.is_symlink() or (not folder.exists() and (SYS / "module" / module).exists())


def disturbed(config: dict[str, Any], faults: Files) -> list[Function]:
    """Return the functions with active faults applied. A fault's parameter is an index; for pcie-link-narrow, a role
    and an index: hca3."""
    made: list[Function] = []
    for function in config["functions"]:
        active = {name for name, value in faults.items() if concerns(function, name, value)}
        if "hca-missing" in active:
            continue
        changed = {**function, "files": dict(function["files"])}
        if "hca-misplaced" in active:
            node = 1 - function["node"]
            changed |= {key: config["spares"][node][key] for key in ("address", "path")} | {"node": node}
            changed["files"]["numa_node"] = f"{node}\n"
        if "gpu-lost" in active:
            changed["files"]["config"] = "\xff" * SIZE
        if "pcie-link-narrow" in active:
            changed["files"] |= {"current_link_width": "4\n", "current_link_speed": "8.0 GT/s PCIe\n"}
            changed["files"]["config"] = patched(changed["files"]["config"], LINK_STATUS, 4 << 4 | 3)
        if function["rdma"]:
            changed["rdma"] = port(function["rdma"], active)
        made.append(changed)
    return made


def concerns(function: Function, name: str, value: str) -> bool:
    if name == "pcie-link-narrow":
        return f"{function['role']}{function['index']}" == value
    if name not in ("gpu-lost", "hca-missing", "hca-misplaced", "ib-port-down", "ib-port-init", "ib-rate-low",
                    "rdma-port-flaps", "rdma-timeouts", "rdma-errors-grow", "hca-link-layer", "roce-gid-missing"):  # fmt: skip
        return False
    return bool(
        function["role"] == ("gpu" if name == "gpu-lost" else "hca") and str(function["index"]) == (value or "0")
    )


def patched(config: str, at: int, word: int) -> str:
    return config[:at] + chr(word & 0xFF) + chr(word >> 8) + config[at + 2 :]


def port(adapter: dict[str, Any], faults: set[str]) -> dict[str, Any]:
    """Return the RDMA device, with the faults of its port."""
    files = dict(adapter["files"])
    if "ib-port-down" in faults:
        physical = "2: Polling" if adapter["prefix"] == "ib" else "3: Disabled"
        files |= {"ports/1/state": "1: DOWN", "ports/1/phys_state": physical}
    if "ib-port-init" in faults:
        files |= {"ports/1/state": "2: INIT"}
    if {"ib-port-down", "ib-port-init"} & faults and adapter["prefix"] == "ib":
        files |= {"ports/1/lid": "0xffff", "ports/1/sm_lid": "0x0"}
    if "ib-rate-low" in faults:
        files["ports/1/rate"] = "100 Gb/sec (1X NDR)"
    if "rdma-port-flaps" in faults:
        files |= {f"ports/1/counters/{name}": count for name, count in FLAPS.items()}
    if "rdma-errors-grow" in faults:
        files["ports/1/counters/symbol_error"] = "500"
    if "rdma-timeouts" in faults:
        files["ports/1/hw_counters/local_ack_timeout_err"] = "12"
    if "hca-link-layer" in faults:
        other = {"InfiniBand": "Ethernet", "Ethernet": "InfiniBand"}
        files["ports/1/link_layer"] = other[files["ports/1/link_layer"]]
    if "roce-gid-missing" in faults:
        # The interface lost its IPv4 address, and the table what came of it.
        files = {key: NO_GID if key in ("ports/1/gids/2", "ports/1/gids/3") else value for key, value in files.items()
                 if not re.fullmatch(r"ports/1/gid_attrs/\w+/[23]", key)}  # fmt: skip
    return {**adapter, "files": files}


def write(before: Files, desired: Files, *, afresh: bool) -> None:
    """Change one layout into another; afresh: rewrite everything, whatever was written in the meantime."""
    for path in sorted(before.keys() - desired.keys(), reverse=True):
        (TREE / path).unlink(missing_ok=True)
        for folder in (TREE / path).parents:
            first, *more = folder.relative_to(TREE).parts
            # What is hung into /sys stays, also when it is empty.
            if not more or (first in ("bus", "class") and len(more) < 3 - (first == "class")) or any(folder.iterdir()):
                break
            folder.rmdir()
    for path, content in desired.items():
        if not afresh and before.get(path) == content:
            continue
        file = TREE / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if content.startswith(LINK):
            file.unlink(missing_ok=True)
            file.symlink_to(content.removeprefix(LINK))
        elif afresh or path not in before or len(before[path]) != len(content):
            file.write_bytes(content.encode("latin-1"))
        else:
            change(file, before[path], content)


def change(file: Path, before: str, content: str) -> None:
    """Write only the bytes that differ: a process may have written others."""
    with file.open("r+b") as opened:
        for at, (old, new) in enumerate(zip(before, content, strict=True)):
            if old != new:
                opened.seek(at)
                opened.write(new.encode("latin-1"))


def forget(desired: Files, word: str) -> None:
    """Undo what a reset undoes: ACS of the bridges, read requests of the functions, RoCE settings."""
    for path, content in desired.items():
        if word in ("acs", "requests") and path.endswith("/config"):
            at = ACS_CONTROL if word == "acs" else DEVICE_CONTROL
            with (TREE / path).open("r+b") as opened:
                opened.seek(at)
                opened.write(content[at : at + 2].encode("latin-1"))
        elif word == "roce" and re.search(r"/(ecn/|traffic_class\Z)", path):
            (TREE / path).write_text(content)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3) or sys.argv[1] not in ("boot", "reload", "refresh", "forget"):
        sys.exit("usage: bus boot|reload [DRIVER]; bus refresh; bus forget acs|requests|roce")
    main(sys.argv[1], sys.argv[2] if len(sys.argv) == 3 else "")
