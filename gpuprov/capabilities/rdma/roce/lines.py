"""The settings of each port that the block `rdma.roce` asks for, and the lines of its configuration on the host."""

from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.capabilities.rdma.roce.fragment import UNSET, Priority, Roce
from gpuprov.hardware.topology.ports import convert_selectors
from gpuprov.host_code.at_boot.roce_ports import Asked, get_default_priority

NONE: Priority = "none"


def priorities(values: tuple[Priority, ...]) -> str:
    """Return a list of priorities as the probe shows it: "3,4", or "none"."""
    return (
        ",".join(str(priority) for priority in sorted({int(priority) for priority in values if priority != NONE}))
        or "none"
    )


def list_values(block: Roce) -> dict[str, str]:
    """Return the desired values of each port, by the probe's keys, in the order in which they are set."""
    values: dict[str, str] = {}
    if block.mtu != UNSET:
        values["mtu"] = str(block.mtu)
    if block.trust:
        values["trust"] = block.trust
    for dscp, priority in sorted(block.dscp2prio.items(), key=lambda item: int(item[0])):
        values[f"dscp.{dscp}"] = str(priority)
    if block.pfc:
        values["pfc"] = priorities(block.pfc)
    if block.mode:
        values["mode"] = block.mode
    for key in ("tos", "traffic_class"):
        if (value := getattr(block, key)) != UNSET:
            values[key] = str(value)
    if block.ecn:
        values["ecn"] = priorities(block.ecn)
    for key in ("cnp_dscp", "cnp_802p_prio"):
        if (value := getattr(block, key)) != UNSET:
            values[key] = str(value)
    return values


def request(block: Rdma) -> Asked:
    """Return the program's request for the block."""
    return Asked(convert_selectors(block), block.count, list_values(block.roce))


def lines(block: Rdma) -> tuple[str, ...]:
    """Return the configuration on the host: which devices, how many, and `set KEY VALUE`; empty if nothing is
    requested."""
    values = list_values(block.roce)
    if not values or block.fabric != "roce":
        return ()
    chosen = [
        " ".join(
            ["device", *(f"{key}={value}" for key in ("pci", "driver", "netdev") if (value := getattr(device, key)))]
        )
        for device in block.devices
    ]
    counted = [f"count {block.count}"] if block.count else []
    return (*chosen, *counted, *(f"set {key} {value}" for key, value in values.items()))


def priority_of(block: Roce, dscp: int) -> int:
    """Return the priority that a port which trusts DSCP gives this DSCP."""
    return block.dscp2prio.get(str(dscp), get_default_priority(dscp))
