"""An eRDMA host as a tree of files below a folder, and programs that stand before the real ones."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

KERNEL = "6.1.0-47-amd64"
MODINFO = """case "$*" in
  *"-n erdma") echo {root}/lib/modules/6.1.0-47-amd64/updates/dkms/erdma.ko ;;
  *"-n ib_core") echo {root}/lib/modules/6.1.0-47-amd64/kernel/drivers/infiniband/core/ib_core.ko ;;
  *description*) echo 'Alibaba elasticRDMA adapter driver'; echo 'Soft RDMA transport' ;;
  *parm*) echo 'compat_mode:compat mode support (bool)'; echo 'default_cc:int' ;;
  *srcversion*) echo {disk} ;;
esac"""


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def tree(
    root: Path,
    *,
    mode: str = "Y",
    loaded: str = "ABC",
    guid: bool = False,
    mtu: int = 1500,
    vendor: str = "softdep erdma pre: ib_uverbs\n",
) -> None:
    """The driver is loaded, its device has the interface eth1: by its GID's, or, with `guid`, by its MAC address
    only."""
    device, function = root / "sys/class/infiniband/erdma_0", root / "sys/bus/pci/devices/0000:00:06.0"
    write(root, {
        f"lib/modules/{KERNEL}/build/Makefile": "", f"lib/modules/{KERNEL}/updates/dkms/erdma.ko": "ib_umem_get_peer",
        f"lib/modules/{KERNEL}/modules.symbols": "alias symbol:ib_umem_get ib_uverbs\n",
        "sys/bus/pci/devices/0000:00:06.0/vendor": "0x1ded\n", "sys/bus/pci/devices/0000:00:06.0/device": "0x107f\n",
        "sys/bus/pci/devices/0000:00:05.0/vendor": "0x1af4\n", "sys/bus/pci/devices/0000:00:05.0/device": "0x1000\n",
        "sys/module/erdma/refcnt": "1\n", "sys/module/erdma/srcversion": f"{loaded}\n",
        "sys/module/erdma/parameters/compat_mode": f"{mode}\n", "sys/module/erdma/parameters/default_cc": "-1\n",
        "sys/module/erdma/holders/smc/x": "",
        "sys/class/infiniband/erdma_0/node_guid": "0016:3eff:fe02:aa10\n", "sys/class/infiniband/rxe0/parent": "eth0\n",
        "sys/class/infiniband_verbs/uverbs0/ibdev": "erdma_0\n",
        "sys/class/net/eth0/address": "02:16:3e:02:aa:11\n", "sys/class/net/eth1/address": "02:16:3e:02:aa:10\n",
        "sys/class/net/eth1/mtu": f"{mtu}\n", "sys/class/net/lo/address": "00:00:00:00:00:00\n",
        "etc/modprobe.d/erdma.conf": vendor, "etc/modules-load.d/erdma.conf": "ib_core\nib_uverbs\nerdma\n",
        "etc/gpuprov/erdma.conf": "# managed\nparameter compat_mode Y\nmtu 8500\n",
        "var/lib/gpuprov/erdma-installer": "abc compat\n",
        "proc/net/tcp": " sl local_address rem_address st\n 0: 0100007F:7792 00000000:0000 0A\n 1: 0100007F:7793 "
                        "00000000:0000 01\n",
        "proc/sys/net/ipv4/ip_local_port_range": "1024\t65535\n",
        "proc/sys/net/ipv4/ip_local_reserved_ports": "30608-30610\n",
        "usr/src/ofa_kernel/default/Module.symvers": "", "drivers/erdma/x": "", "var/lib/dkms/erdma/1.0.2/x": "",
    })  # fmt: skip
    if not guid:
        write(device, {"ports/1/gid_attrs/ndevs/0": "eth1\n"})
    (function / "driver").symlink_to(root / "drivers/erdma")
    (device / "device").symlink_to(function)


def environment(root: Path, **programs: str) -> dict[str, str]:
    """PATH with stand-ins for what the host has."""
    folder = root / "bin"
    folder.mkdir(exist_ok=True)
    commands = {
        "modinfo": MODINFO.format(root=root, disk="ABC"), "uname": f"echo {KERNEL}",
        "dkms": "echo erdma/1.0.2, x: installed",
        "modprobe": "echo 'options erdma compat_mode=Y'; echo 'softdep erdma pre: ib_uverbs'",
        "eadm": "echo version 0.2.37",
        "systemctl": "exit 1", "journalctl": "exit 1", "dpkg-query": "echo 'package|erdma|installed'", **programs,
    }  # fmt: skip
    for name, body in commands.items():
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:/usr/bin:/bin"}


def here(root: Path, script: str) -> str:
    """The script with all its paths below the folder."""
    for place in ("sys", "lib/modules", "etc", "proc", "usr/src", "var/lib", "boot", "run/modprobe.d"):
        script = script.replace(f" /{place}/", f" {root}/{place}/").replace(f'"/{place}/', f'"{root}/{place}/')
        script = script.replace(f"=/{place}/", f"={root}/{place}/").replace(f"</{place}/", f"<{root}/{place}/")
    return script


def run(root: Path, script: str, *words: str, stdin: str = "", **programs: str) -> subprocess.CompletedProcess[str]:
    """A script with all its paths below the folder."""
    command = ["sh", "-c", here(root, script), "erdma", *words]
    env = environment(root, **programs)
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=20, env=env)
