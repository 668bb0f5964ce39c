"""RDMA devices of a simulated container, as the kernel's mlx5_ib shows them in sysfs: files only, no verbs behind them.

Names of files and forms of values: the kernel's Documentation/ABI/stable/sysfs-class-infiniband and
drivers/infiniband/hw/mlx5/counters.c; what NVIDIA's OFED adds (`tc`, `ecn`) as
https://github.com/Mellanox/nic-configuration-operator uses it.
"""

from __future__ import annotations

import hashlib
import ipaddress

import msgspec

from gpuprov.simulate.description import Description
from gpuprov.simulate.devices import BRIDGE_VPD, PciDevice

# Network from RFC 2544's range for benchmarks, which no site routes: a /20 for each rail, the same on all simulated
# hosts.
NETWORK = ipaddress.IPv4Network("198.18.0.0/16")
RATES = {100: "100 Gb/sec (4X EDR)", 200: "200 Gb/sec (4X HDR)", 400: "400 Gb/sec (4X NDR)", 800: "800 Gb/sec (4X XDR)"}
# PCI id -> type and a firmware release of its family.
TYPES = {
    "15b3:101b": ("MT4123", "20.43.2566"),
    "15b3:1021": ("MT4129", "28.43.2566"),
    "15b3:1023": ("MT4131", "40.45.1200"),
}
EMPTY_GID = ":".join(["0000"] * 8)
# Entries of a GID table of mlx5, by link layer; most are empty.
GIDS = {"InfiniBand": 8, "Ethernet": 255}
NO_LID, SUBNET_MANAGER = 0xFFFF, 1
COUNTERS = (
    "excessive_buffer_overrun_errors",
    "link_downed",
    "link_error_recovery",
    "local_link_integrity_errors",
    "multicast_rcv_packets",
    "multicast_xmit_packets",
    "port_rcv_constraint_errors",
    "port_rcv_data",
    "port_rcv_errors",
    "port_rcv_packets",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_constraint_errors",
    "port_xmit_data",
    "port_xmit_discards",
    "port_xmit_packets",
    "port_xmit_wait",
    "symbol_error",
    "unicast_rcv_packets",
    "unicast_xmit_packets",
    "VL15_dropped",
)
HW_COUNTERS = (
    "duplicate_request",
    "implied_nak_seq_err",
    "lifespan",
    "local_ack_timeout_err",
    "np_cnp_sent",
    "np_ecn_marked_roce_packets",
    "out_of_buffer",
    "out_of_sequence",
    "packet_seq_err",
    "req_cqe_error",
    "req_cqe_flush_error",
    "req_remote_access_errors",
    "req_remote_invalid_request",
    "resp_cqe_error",
    "resp_cqe_flush_error",
    "resp_local_length_error",
    "resp_remote_access_errors",
    "rnr_nak_retry_err",
    "roce_adp_retrans",
    "roce_slow_restart",
    "rp_cnp_handled",
    "rp_cnp_ignored",
    "rx_atomic_requests",
    "rx_icrc_encapsulated",
    "rx_read_requests",
    "rx_write_requests",
)
ROCE_COUNTERS = {
    "np_cnp_sent",
    "np_ecn_marked_roce_packets",
    "rp_cnp_handled",
    "rp_cnp_ignored",
    "rx_icrc_encapsulated",
}


class Netdev(msgspec.Struct, frozen=True):
    """The network interface of a RoCE port: `mac`, `address` with its prefix length, `speed` in Mb/s."""

    mac: str
    address: str
    speed: int


class RdmaTree(msgspec.Struct, frozen=True):
    """`prefix` of its name, from rdma-core's udev rules; `files` below its folder, `ofed` those that only NVIDIA's OFED
    has, `ofed_netdev` the same below the folder of its network interface. `@netdev@` in a text stands for the
    interface's name."""

    prefix: str
    files: dict[str, str]
    ofed: dict[str, str] = {}
    ofed_netdev: dict[str, str] = {}
    netdev: Netdev | None = None


def device(host: str, description: Description, function: PciDevice) -> RdmaTree | None:
    """Return the RDMA device of this function; None if it is neither an HCA nor a bridge to NVSwitches."""
    if function.role not in ("hca", "nvlink-bridge"):
        return None
    digest = hashlib.sha256(f"{host}/{function.role}/{function.index}".encode()).digest()
    # Locally administered; the third octet is never one that a vendor has.
    mac = bytes([0x02, 0x67, 0x70, *digest[:3]])
    guid = (mac[:3] + b"\x03\x00" + mac[3:]).hex()
    shown = ":".join(guid[at : at + 4] for at in range(0, 16, 4))
    kind, firmware = TYPES[function.identifier]
    files = {
        "node_type": "1: CA",
        "node_guid": shown,
        "sys_image_guid": shown,
        "node_desc": f"{host} HCA-{function.index + 1}",
        "fw_ver": firmware,
        "hca_type": kind,
        "hw_rev": "0",
        "board_id": "MT_0000000838",
    }
    bridge = function.vpd == BRIDGE_VPD
    if description.fabric == "roce" and not bridge:
        netdev = Netdev(
            ":".join(f"{octet:02x}" for octet in mac), _address(host, function.index), description.rate * 1000
        )
        files |= _port(description.rate, "Ethernet", lid=0, manager=0) | _roce_gids(mac, netdev.address)
        return RdmaTree("roce", files, {"tc/1/traffic_class": ""}, _congestion(), netdev)
    # What NVLSM does to the bridges is not simulated; opensm and its kind have no part in them.
    lid = 0 if bridge else 16 * function.index + 2
    files |= _port(description.rate, "InfiniBand", lid=lid, manager=0 if bridge else SUBNET_MANAGER)
    files |= _gids({0: f"fe80:0000:0000:0000:{shown}"}, "InfiniBand", {0: "IB/RoCE v1"})
    return RdmaTree("ib", files)


def _port(rate: int, link_layer: str, *, lid: int, manager: int) -> dict[str, str]:
    files = {
        "state": "4: ACTIVE" if lid or link_layer == "Ethernet" else "2: INIT",
        "phys_state": "5: LinkUp",
        "link_layer": link_layer,
        "rate": RATES[rate],
        "lid": f"0x{lid if lid or link_layer == 'Ethernet' else NO_LID:x}",
        "lid_mask_count": "0",
        "sm_lid": f"0x{manager:x}",
        "sm_sl": "0",
        "cap_mask": "0x04010000" if link_layer == "Ethernet" else "0xa751e848",
        "has_smi": "0" if link_layer == "Ethernet" else "1",
        "pkeys/0": "0xffff",
    }
    skipped = ROCE_COUNTERS if link_layer == "InfiniBand" else set()
    files |= {f"counters/{name}": "0" for name in COUNTERS}
    files |= {f"hw_counters/{name}": "10" if name == "lifespan" else "0" for name in HW_COUNTERS if name not in skipped}
    return {f"ports/1/{name}": value for name, value in files.items()}


def _gids(known: dict[int, str], link_layer: str, types: dict[int, str]) -> dict[str, str]:
    """Return the GID table; only entries that are set have a type, the kernel returns "Invalid argument" for the
    others."""
    made = {f"ports/1/gids/{index}": known.get(index, EMPTY_GID) for index in range(GIDS[link_layer])}
    made |= {f"ports/1/gid_attrs/types/{index}": kind for index, kind in types.items()}
    if link_layer == "Ethernet":
        made |= {f"ports/1/gid_attrs/ndevs/{index}": "@netdev@" for index in types}
    return made


def _roce_gids(mac: bytes, address: str) -> dict[str, str]:
    """Return the GIDs of the link-local address, then of the IPv4 one; each as RoCE v1 and as v2."""
    eui = bytes([mac[0] ^ 2, *mac[1:3], 0xFF, 0xFE, *mac[3:]]).hex()
    local = "fe80:0000:0000:0000:" + ":".join(eui[at : at + 4] for at in range(0, 16, 4))
    four = ipaddress.ip_interface(address).ip.packed.hex()
    mapped = f"0000:0000:0000:0000:0000:ffff:{four[:4]}:{four[4:]}"
    types = {index: "RoCE v2" if index % 2 else "IB/RoCE v1" for index in range(4)}
    return _gids({0: local, 1: local, 2: mapped, 3: mapped}, "Ethernet", types)


def _address(host: str, index: int) -> str:
    """Return a host address in the rail's network, derived from the name alone; never 0 or 255."""
    number = int.from_bytes(hashlib.sha256(host.encode()).digest()[:4], "big")
    rail = list(NETWORK.subnets(new_prefix=20))[index]
    return f"{rail.network_address + 256 * (number % 16) + 1 + number // 16 % 254}/20"


def _congestion() -> dict[str, str]:
    """Return OFED's initial state: ECN on for all priorities, notifications with DSCP 48 and priority 6."""
    files = {f"ecn/roce_{point}/enable/{priority}": "1" for point in ("np", "rp") for priority in range(8)}
    return files | {"ecn/roce_np/cnp_dscp": "48", "ecn/roce_np/cnp_802p_prio": "6"}
