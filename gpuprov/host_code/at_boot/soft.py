"""The program of software RDMA: `soft apply [SECONDS]` waits for interfaces, creates missing devices, and removes those
it created that are no longer requested; `soft remove` removes all it created. Devices are identified by interface: udev
may rename them.

Its configuration has lines `DRIVER INTERFACE`: rxe or siw; a network interface's name or MAC address, or default: that
of the default route.
"""

from __future__ import annotations

import os
import re
from typing import Sequence

from . import devices, devices_reader, network
from .devices import RdmaDevice
from .program import Refused, main, read, read_rows, run_for_complaint, tell, wait

CONFIG = "/etc/gpuprov/rdma-soft.conf"
MADE = "/run/gpuprov/rdma-soft"
DEFAULT = "default"
MODULES = {"rxe": "rdma_rxe", "siw": "siw"}


def select_of_netdev(netdev: str, candidates: Sequence[RdmaDevice]) -> list[RdmaDevice]:
    """Return the software devices of an interface."""
    return [device for device in candidates if device.soft and netdev in device.netdevs]


def list_of_driver(netdev: str, driver: str) -> list[str]:
    """Return names of the devices of an interface that have this driver."""
    soft_devices = select_of_netdev(netdev, devices.parse(read(devices_reader.READER)))
    return [device.name for device in soft_devices if device.driver == MODULES[driver]]


def find_interface(word: str) -> str:
    """Return the name of the interface; "" if it does not exist."""
    state = network.parse(read(network.READER))
    if word == DEFAULT:
        return state.default_route
    netdev = network.find_netdev(word, state.netdevs)
    return netdev.name if netdev else ""


def find_port_users() -> str:
    return ", ".join(network.parse(read(network.READER)).port_users)


def load(driver: str) -> None:
    for module in (MODULES[driver], "rdma_ucm", "ib_uverbs"):
        if os.path.isdir(f"/sys/module/{module}"):
            continue
        if error := run_for_complaint("modprobe", module):
            held = find_port_users() if module == MODULES["rxe"] else ""
            raise Refused(f"modprobe {module}: " + (f"UDP port 4791 is held by {held}" if held else error))


def make(driver: str, netdev: str) -> None:
    load(driver)
    argv = ["rdma", "link", "add", f"{driver}_{re.sub('[^A-Za-z0-9_]', '_', netdev)}", "type", driver, "netdev", netdev]
    if error := run_for_complaint(*argv):
        raise Refused(f"{' '.join(argv)}: {error}; UDP port 4791: {find_port_users() or 'free'}")
    # At once: the next interface may not be there, and what was made is still to be removed one day.
    keep([*read_kept_links(), [driver, netdev]])
    # udev may give it another name now.
    run_for_complaint("udevadm", "settle", "--timeout=10")
    if not list_of_driver(netdev, driver):
        raise Refused(f"{netdev} has no {driver} device although rdma link add succeeded")
    tell(f"{netdev}: {driver} device made")


def drop(driver: str, netdev: str) -> bool:
    """Remove the links; return whether none is left."""
    stays = 0
    for name in list_of_driver(netdev, driver):
        error = run_for_complaint("rdma", "link", "delete", name)
        tell(f"{netdev}: {name} stays: {error}" if error else f"{netdev}: {name} removed")
        stays += bool(error)
    return not stays


def read_kept_links() -> list[list[str]]:
    """Return the created links, driver and interface of each."""
    return read_rows(MADE, *MODULES) if os.path.exists(MADE) else []


def keep(those: Sequence[Sequence[str]]) -> None:
    os.makedirs(os.path.dirname(MADE), mode=0o755, exist_ok=True)
    with open(f"{MADE}.new", "w", encoding="utf-8") as file:
        file.writelines(f"{driver} {netdev}\n" for driver, netdev in those)
    os.rename(f"{MADE}.new", MADE)


def apply(seconds: int) -> None:
    requested = read_rows(CONFIG, *MODULES)
    if not requested:
        raise Refused(f"{CONFIG} names no interface")
    names = []
    for driver, word in requested:
        seconds = wait(seconds, lambda word=word: bool(find_interface(word)))  # type: ignore[misc]
        netdev = find_interface(word)
        if not netdev:
            raise Refused(f"no network interface {word}")
        names.append([driver, netdev])
        if not list_of_driver(netdev, driver):
            make(driver, netdev)
    keep([*names, *(row for row in read_kept_links() if row not in names and not drop(*row))])


def remove(_seconds: int) -> None:
    remaining = [row for row in read_kept_links() if not drop(*row)]
    if remaining:
        keep(remaining)
    elif os.path.exists(MADE):
        os.unlink(MADE)


if __name__ == "__main__":
    main("rdma-soft", {"apply": apply, "remove": remove})
