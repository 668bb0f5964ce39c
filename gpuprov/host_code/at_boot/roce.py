"""The program that sets RoCE ports: `roce apply [SECONDS]` waits for the devices, sets differing values, and reads them
back.

Its configuration has lines `device [pci=] [driver=] [netdev=]` (none: every RoCE device), `count N`, and `set KEY
VALUE`.
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import Iterator

from . import devices, devices_reader
from .devices import Selector
from .program import Refused, have, is_contained, main, read, read_rows, run, run_for_complaint, tell, wait, write
from .roce_ports import (
    READER,
    Asked,
    Difference,
    RocePort,
    describe_missing_ports,
    get_default_priority,
    list_differences,
    parse,
    select_ports,
)

CONFIG = "/etc/gpuprov/roce.conf"
CLASS = "/sys/class/infiniband"
MANAGER = "/sys/kernel/config/rdma_cm"
MODES = {"v1": "IB/RoCE v1", "v2": "RoCE v2"}
PRIORITIES = range(8)
# Settings that precede the others: a port that trusts the PCP has no map of DSCPs.
FIRST = ("mtu", "trust")


def read_request() -> Asked:
    config_rows = read_rows(CONFIG, "device", "count", "set")
    chosen_by = [Selector(**dict(word.split("=", 1) for word in row[1:])) for row in config_rows if row[0] == "device"]
    counts = [int(row[1]) for row in config_rows if row[0] == "count"]
    values = {row[1]: row[2] for row in config_rows if row[0] == "set"}
    if not values:
        raise Refused(f"{CONFIG} has no settings")
    return Asked(chosen_by, max(counts, default=0), values)


class Host:
    """The host's ports as last read, and messages about those that cannot be set."""

    def __init__(self, desired: Asked) -> None:
        self.desired = desired
        self.complaints: dict[tuple[str, str], str] = {}

    def look(self) -> bool:
        """Read the ports; return whether all are present."""
        self.devices = devices.parse(read(devices_reader.READER))
        ports = parse(read(READER))
        self.ports, self.lost = (
            select_ports(self.desired, ports, self.devices),
            describe_missing_ports(self.desired, ports, self.devices),
        )
        return not self.lost

    def differences(self) -> list[Difference]:
        return list_differences(self.ports, self.desired.values)

    def put(self, first: bool) -> None:
        """Set the differing values that are set first, or the others, and read again."""
        for difference in self.differences():
            if (difference.key in FIRST) == first:
                self.complaints[difference.place] = self.put_value(difference)
        self.look()

    def put_value(self, difference: Difference) -> str:
        """Set one value; return the error, or ""."""
        port, key, value = difference.port, difference.key, difference.value
        if key == "traffic_class":
            return write(f"{CLASS}/{port.device}/tc/{port.number}/traffic_class", value)
        if key == "mode" and have("cma_roce_mode"):
            return run_for_complaint("cma_roce_mode", "-d", port.device, "-p", str(port.number), "-m", value[1:])
        if key == "tos" and have("cma_roce_tos"):
            return run_for_complaint("cma_roce_tos", "-d", port.device, "-p", str(port.number), "-t", value)
        if key in ("mode", "tos"):
            return set_connections(port, f"default_roce_{key}", MODES.get(value, value))
        if not port.netdev:
            return "the port has no network interface"
        if key == "mtu":
            return run_for_complaint("ip", "link", "set", "dev", port.netdev, "mtu", value)
        if key == "ecn":
            return next(filter(None, set_ecn(port.netdev, value)), "")
        if key.startswith("cnp_"):
            return write(self._notification(port, key), value)
        return run_for_complaint(*(set_qos if have("mlnx_qos") else self._dcb)(port.netdev, key, value))

    def _notification(self, port: RocePort, key: str) -> str:
        """Return the file for congestion notification packets: of NVIDIA's OFED, or of the kernel's driver."""
        ofed = f"/sys/class/net/{port.netdev}/ecn/roce_np/{key}"
        address = next(device.address for device in self.devices if device.name == port.device)
        if port.leg:
            address = os.path.basename(os.path.realpath(f"/sys/class/net/{port.netdev}/device"))
        name = "np_cnp_dscp" if key == "cnp_dscp" else "np_cnp_prio"
        return ofed if os.path.exists(ofed) else f"/sys/kernel/debug/mlx5/{address}/cc_params/{name}"

    def _dcb(self, netdev: str, key: str, value: str) -> list[str]:
        if key == "pfc":
            on = parse_priorities(value)
            return [
                "dcb",
                "pfc",
                "set",
                "dev",
                netdev,
                "prio-pfc",
                "all:off",
                *(f"{priority}:on" for priority in PRIORITIES if priority in on),
            ]
        if key != "trust":
            return ["dcb", "app", "replace", "dev", netdev, "dscp-prio", f"{key[len('dscp.') :]}:{value}"]
        if value == "pcp":
            return ["dcb", "app", "flush", "dev", netdev, "dscp-prio"]
        # The map that a port has by itself, as mlnx_qos --trust dscp sets it, with what is asked for.
        mapped = (self.desired.values.get(f"dscp.{dscp}", get_default_priority(dscp)) for dscp in range(64))
        return [
            "dcb",
            "app",
            "add",
            "dev",
            netdev,
            "dscp-prio",
            *(f"{dscp}:{priority}" for dscp, priority in enumerate(mapped)),
        ]


def parse_priorities(value: str) -> list[int]:
    return [] if value == "none" else [int(number) for number in value.split(",")]


def set_qos(netdev: str, key: str, value: str) -> list[str]:
    if key == "pfc":
        options = ["--pfc", ",".join(str(int(priority in parse_priorities(value))) for priority in PRIORITIES)]
    elif key == "trust":
        options = ["--trust", value]
    else:
        options = ["--dscp2prio", f"set,{key[len('dscp.') :]},{value}"]
    return ["mlnx_qos", "-i", netdev, *options]


def set_ecn(netdev: str, value: str) -> Iterator[str]:
    for priority in PRIORITIES:
        for point in ("roce_np", "roce_rp"):
            yield write(
                f"/sys/class/net/{netdev}/ecn/{point}/enable/{priority}", str(int(priority in parse_priorities(value)))
            )


def set_connections(port: RocePort, name: str, value: str) -> str:
    """Write to a device's folder in rdma_cm, created just for this: the setting belongs to the device, and stays."""
    folder, error = f"{MANAGER}/{port.device}", ""
    for _ in range(3):
        made = False
        with contextlib.suppress(OSError):
            os.mkdir(folder)
            made = True
        error = write(f"{folder}/ports/{port.number}/{name}", value)
        if made:
            with contextlib.suppress(OSError):
                os.rmdir(folder)
        if error != os.strerror(errno.ENOENT):  # a reader of the same device may have removed its folder at that moment
            break
    return error


def load_manager() -> None:
    """Bring the folder of rdma_cm, whose module and file system may not be there yet."""
    if not os.path.isdir(MANAGER) and not is_contained():
        run("modprobe", "rdma_cm")
        if not os.path.isdir(MANAGER):
            run("mount", "-t", "configfs", "none", "/sys/kernel/config")


def wait_until_settled(seconds: int) -> int:
    """Wait until no more devices appear; return the seconds that are left."""
    counts = [-1]

    def alike() -> bool:
        counts.append(len(os.listdir(CLASS)) if os.path.isdir(CLASS) else 0)
        return counts[-1] == counts[-2] > 0

    return wait(seconds, alike) if seconds else 0


def apply(seconds: int) -> None:
    desired = read_request()
    seconds = wait_until_settled(seconds)
    load_manager()
    host = Host(desired)
    wait(seconds, host.look)
    before = host.differences()
    host.put(first=True)
    host.put(first=False)
    remaining = {item.place: item for item in host.differences()}
    for difference in before:
        if difference.place not in remaining:
            tell(f"{difference.port.name}: {difference.key} {difference.actual} -> {difference.value}")
    problems = list(host.lost)
    for difference in remaining.values():
        why = host.complaints.get(difference.place, "")
        problems.append(
            f"{difference.port.name}: {difference.key} is {difference.actual}, expected {difference.value}"
            + (f" ({why})" if why else "")
        )
    if problems:
        raise Refused("; ".join(problems))


if __name__ == "__main__":
    main("roce", {"apply": apply})
