"""AWS's Elastic Fabric Adapter on a simulated container: its PCI functions, its RDMA devices, and an instance type in
DMI.

Files and forms as in https://github.com/amzn/amzn-drivers/tree/master/kernel/linux/efa (src/efa_main.c, efa_sysfs.c,
efa_nvmem_impl.h) and Linux' drivers/infiniband/core/sysfs.c; names of devices as rdma-core's udev rules derive them
from their place, as in fi_info of a p4d.24xlarge.
"""

from __future__ import annotations

import hashlib

from gpuprov.catalog.rdma import efa as catalogue
from gpuprov.simulate.description import Description
from gpuprov.simulate.parts import cloud_rdma
from gpuprov.simulate.parts.base import Part
from gpuprov.simulate.parts.cloud_rdma import Cloud, Function, Mode
from gpuprov.simulate.parts.silicon_files.bus_container import place_name

# PCI id, from ibv_devinfo of a p5en.48xlarge.
PCI_ID = "1d0f:efa2"
DOMAIN, FIRST_BUS, SLOT = 2, 0x10, 0x1B
VENDOR = "Amazon EC2"
COUNTERS = ("tx_bytes", "tx_pkts", "rx_bytes", "rx_pkts", "rx_drops", "send_bytes", "recv_bytes", "rdma_read_bytes")
SHOWN = {
    "node_type": "7: unspecified",
    "fw_ver": "0.0.0.0",
    "hw_rev": "efa2",
    "sys_image_guid": "0000:0000:0000:0000",
    "node_desc": "gpuprov stand-in",
    "ports/1/state": "4: ACTIVE",
    "ports/1/phys_state": "5: LinkUp",
    "ports/1/link_layer": "Unknown",
    "ports/1/rate": "100 Gb/sec (4X EDR)",
    "ports/1/lid": "0x0",
    "ports/1/sm_lid": "0x0",
    "ports/1/pkeys/0": "0xffff",
    **{f"ports/1/hw_counters/{name}": "0" for name in COUNTERS},
}


def part(name: str, description: Description) -> Part:
    """Return the functions; nothing if none are requested."""
    count = description.efa
    if not count:
        return Part()
    cloud = Cloud(
        module="efa",
        functions=tuple(_function(name, index, count) for index in range(count)),
        modes=(Mode(files=SHOWN),),
        p2p=True,
        classes={"dmi/id/product_name": instance(count), "dmi/id/sys_vendor": VENDOR},
    )
    return cloud_rdma.part(cloud)


def instance(count: int) -> str:
    """Return an instance type that can have this many adapters, with the smallest limit."""
    known = [instance for instance in catalogue.read_efa_file().instances if instance.devices >= count]
    return min(known, key=lambda row: row.devices).type


def _function(name: str, index: int, count: int) -> Function:
    address = f"{DOMAIN:04x}:{FIRST_BUS + index:02x}:{SLOT:02x}.0"
    digest = hashlib.sha256(f"{name}/efa/{index}".encode()).hexdigest()
    guid = f"{digest[:4]}:{digest[4:8]}:0000:0000"
    gid = f"fe80:0000:0000:0000:{digest[8:12]}:{digest[12:16]}:fe00:0000"
    return Function(
        address=address,
        files=cloud_rdma.pci_files(address, PCI_ID, 0 if index < (count + 1) // 2 else 1),
        device=f"rdma{place_name(address)}",
        shown={"node_guid": guid, "ports/1/gids/0": gid},
    )
