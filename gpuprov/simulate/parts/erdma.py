"""Alibaba's eRDMA on a simulated container: one PCI function with a network interface, whose driver has a compat
mode."""

from __future__ import annotations

from gpuprov.simulate.description import Description
from gpuprov.simulate.parts import cloud_rdma
from gpuprov.simulate.parts.base import Part
from gpuprov.simulate.parts.cloud_rdma import Cloud, Function, Mode, Netdev

ADDRESS, PCI_ID = "0002:00:06.0", "1ded:107f"
NETDEV = Netdev(name="eth1", mac="02:16:3e:00:45:01", address="192.168.45.10/24", peer="sw-erdma")
GUID = "0016:3eff:fe00:4501"
GIDS = {0: f"fe80:0000:0000:0000:{GUID}", 1: "0000:0000:0000:0000:0000:ffff:c0a8:2d0a"}
# Parameters of Alibaba's driver 0.2.37, with made-up values where the source has none.
PARAMETERS = {
    "compat_mode": "N",
    "legacy_mode": "N",
    "reserve_ports_base": "30608",
    "vector_num": "0",
    "default_cc": "-1",
    "rand_qpn": "N",
    "wwi_perf": "N",
}
SHOWN = {
    "node_guid": GUID,
    "fw_ver": "0.2.0",
    "node_desc": "gpuprov stand-in",
    "ports/1/state": "4: ACTIVE",
    "ports/1/phys_state": "5: LinkUp",
    "ports/1/link_layer": "Ethernet",
    "ports/1/rate": "100 Gb/sec (4X EDR)",
    "ports/1/lid": "0x0",
    "ports/1/sm_lid": "0x0",
    "ports/1/hw_counters/hw_tx_bytes_cnt": "0",
    "ports/1/hw_counters/hw_rx_bytes_cnt": "0",
}
ROCE = {
    "node_type": "1: CA",
    **{f"ports/1/gids/{index}": gid for index, gid in GIDS.items()},
    **{f"ports/1/gid_attrs/types/{index}": "RoCE v2" for index in GIDS},
    **{f"ports/1/gid_attrs/ndevs/{index}": NETDEV.name for index in GIDS},
}
IWARP = {"node_type": "4: RNIC", "ports/1/gids/0": "0216:3e00:4501:0000:0000:0000:0000:0000"}


def part(_name: str, description: Description) -> Part:
    """Return the function and its interface; nothing if none are requested."""
    if not description.erdma:
        return Part()
    function = Function(address=ADDRESS, files=cloud_rdma.pci_files(ADDRESS, PCI_ID, 0), device="erdma_0", shown=SHOWN)
    modes = (Mode(when="compat_mode=Y", files=ROCE), Mode(files=IWARP))
    return cloud_rdma.part(
        Cloud(module="erdma", functions=(function,), parameters=PARAMETERS, modes=modes, netdev=NETDEV)
    )
