"""A host of virtual machines with two GPUs, as the probe `passthrough` prints it: both lent, one of them in use."""

from __future__ import annotations

HELD, FREE, SWITCH, NIC, PORT = "0000:19:00.0", "0000:5d:00.0", "0000:07:00.0", "0000:1a:00.0", "0000:18:01.0"
CONFIG = "config|\nconfig|driver vfio-pci\nconfig|gpu all\n"


def function(
    address: str, driver: str = "", override: str = "", group: str = "", *, of: str = "10de:2330|030200", node: str = ""
) -> str:
    return f"function|{address}|{of}|{driver}|{override}|{group}|{node}\n"


def lent(address: str, group: str, **more: str) -> str:
    return function(address, "vfio-pci", "vfio-pci", group, **more)


USER = "user|7|4242|qemu-system-x86\n"
SWITCHES = {"of": "10de:22a3|068000"}
PROBES = {"passthrough": lent(HELD, "7") + lent(FREE, "8") + USER + f"taken|{HELD}\ntaken|{FREE}\n" + CONFIG}
