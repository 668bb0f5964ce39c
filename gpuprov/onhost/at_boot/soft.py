"""The program of software RDMA: `soft apply [SECONDS]` waits for interfaces, makes what is missing, and removes what it made and
nobody asks for any more; `soft remove` removes what it made. Devices are found by interface: udev may rename them.

Its configuration has lines `DRIVER INTERFACE`: rxe or siw; a network interface's name or MAC address, or default: that of the default
route.
"""

from __future__ import annotations

import os
import re
from typing import Sequence

from . import devices, network
from .devices import RdmaDevice
from .program import Refused, complaint, main, read, rows, tell, wait

CONFIG = "/etc/gpuprov/rdma-soft.conf"
MADE = "/run/gpuprov/rdma-soft"
DEFAULT = "default"
MODULES = {"rxe": "rdma_rxe", "siw": "siw"}


def on(netdev: str, there: Sequence[RdmaDevice]) -> list[RdmaDevice]:
    """The software devices of an interface."""
    return [device for device in there if device.soft and netdev in device.netdevs]


def made(netdev: str, driver: str) -> list[str]:
    """Names of the devices of an interface that have this driver."""
    there = on(netdev, devices.parse(read(devices.READER)))
    return [device.name for device in there if device.driver == MODULES[driver]]


def interface(word: str) -> str:
    """The interface that is meant; empty where it is not there."""
    found = network.parse(read(network.READER))
    if word == DEFAULT:
        return found.default_route
    one = network.named(word, found.netdevs)
    return one.name if one else ""


def port_users() -> str:
    return ", ".join(network.parse(read(network.READER)).port_users)


def load(driver: str) -> None:
    for module in (MODULES[driver], "rdma_ucm", "ib_uverbs"):
        if os.path.isdir(f"/sys/module/{module}"):
            continue
        if said := complaint("modprobe", module):
            held = port_users() if module == MODULES["rxe"] else ""
            raise Refused(f"modprobe {module}: " + (f"UDP port 4791 is held by {held}" if held else said))


def make(driver: str, netdev: str) -> None:
    load(driver)
    argv = ["rdma", "link", "add", f"{driver}_{re.sub('[^A-Za-z0-9_]', '_', netdev)}", "type", driver, "netdev", netdev]
    if said := complaint(*argv):
        raise Refused(f"{' '.join(argv)}: {said}; UDP port 4791: {port_users() or 'free'}")
    # At once: the next interface may not be there, and what was made is still to be removed one day.
    keep([*kept(), [driver, netdev]])
    # udev may give it another name now.
    complaint("udevadm", "settle", "--timeout=10")
    if not made(netdev, driver):
        raise Refused(f"{netdev} has no {driver} device although rdma link add succeeded")
    tell(f"{netdev}: {driver} device made")


def drop(driver: str, netdev: str) -> bool:
    """Whether none is left."""
    stays = 0
    for name in made(netdev, driver):
        said = complaint("rdma", "link", "delete", name)
        tell(f"{netdev}: {name} stays: {said}" if said else f"{netdev}: {name} removed")
        stays += bool(said)
    return not stays


def kept() -> list[list[str]]:
    """What was made, driver and interface of each."""
    return rows(MADE, *MODULES) if os.path.exists(MADE) else []


def keep(those: Sequence[Sequence[str]]) -> None:
    os.makedirs(os.path.dirname(MADE), mode=0o755, exist_ok=True)
    with open(f"{MADE}.new", "w", encoding="utf-8") as file:
        file.writelines(f"{driver} {netdev}\n" for driver, netdev in those)
    os.rename(f"{MADE}.new", MADE)


def apply(seconds: int) -> None:
    asked = rows(CONFIG, *MODULES)
    if not asked:
        raise Refused(f"{CONFIG} names no interface")
    found = []
    for driver, word in asked:
        seconds = wait(seconds, lambda word=word: bool(interface(word)))  # type: ignore[misc]
        netdev = interface(word)
        if not netdev:
            raise Refused(f"no network interface {word}")
        found.append([driver, netdev])
        if not made(netdev, driver):
            make(driver, netdev)
    keep([*found, *(row for row in kept() if row not in found and not drop(*row))])


def remove(_seconds: int) -> None:
    left = [row for row in kept() if not drop(*row)]
    if left:
        keep(left)
    elif os.path.exists(MADE):
        os.unlink(MADE)


if __name__ == "__main__":
    main("rdma-soft", {"apply": apply, "remove": remove})
