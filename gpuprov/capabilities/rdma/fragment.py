"""The `rdma` block."""

from typing import Annotated, Literal

import msgspec

from gpuprov.capabilities.rdma.efa.fragment import Efa
from gpuprov.capabilities.rdma.erdma.fragment import Erdma
from gpuprov.capabilities.rdma.nccl.fragment import Nccl
from gpuprov.capabilities.rdma.ofed.fragment import Ofed
from gpuprov.capabilities.rdma.roce.fragment import Roce
from gpuprov.spec.described import describe
from gpuprov.spec.model import Fragment

FabricName = Literal["infiniband", "roce", "iwarp", "erdma", "efa", "soft"]
Netdev = Annotated[
    str,
    describe(
        'a network interface by name (ens3) or by MAC address in lower case ("52:54:00:12:34:56")',
        pattern=r"^([A-Za-z][A-Za-z0-9_.-]{0,14}|([0-9a-f]{2}:){5}[0-9a-f]{2})$",
    ),
]


class Selector(Fragment, frozen=True, omit_defaults=True):
    """RDMA devices, selected by stable properties, all of which must match. A device's own number and name may
    change."""

    pci: Annotated[
        str, describe('its PCI address: "0000:3b:00.0"', pattern=r"^(([0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])?$")
    ] = ""
    driver: Annotated[str, describe("its kernel driver: mlx5_core", pattern=r"^[a-z0-9_]*$")] = ""
    netdev: Annotated[
        str,
        describe(
            "the network interface of its port, by name or by MAC address",
            pattern=r"^([A-Za-z][A-Za-z0-9_.-]{0,14}|([0-9a-f]{2}:){5}[0-9a-f]{2})?$",
        ),
    ] = ""


class Opensm(Fragment, frozen=True):
    """The subnet manager of an InfiniBand fabric whose switches have none."""

    hosts: Annotated[
        tuple[Annotated[str, msgspec.Meta(min_length=1)], ...],
        describe("names, as the inventory has them, of the hosts that run opensm; on no other host does it run"),
    ] = ()
    elsewhere: Annotated[
        bool, describe("a managed switch or another host is the subnet manager, and its absence here is no warning")
    ] = False


class Soft(Fragment, frozen=True):
    """Software RDMA on ordinary network interfaces."""

    driver: Annotated[
        Literal["rxe", "siw"], describe("rxe speaks RoCE v2 over UDP 4791; siw speaks iWARP over TCP")
    ] = "rxe"
    netdevs: Annotated[
        tuple[Netdev, ...],
        describe("interfaces, by name or MAC address, that get a device; without any, the one of the default route"),
    ] = ()


class Rdma(Fragment, frozen=True):
    """RDMA devices of one fabric: their stack, their settings, and NCCL's configuration for them.

    Devices are selected by PCI address, driver or network interface, never by number. A block such as `roce` or `efa`
    implies its fabric.
    """

    IMPLIES = {
        "opensm": ("fabric", "infiniband"),
        "soft": ("fabric", "soft"),
        "roce": ("fabric", "roce"),
        "erdma": ("fabric", "erdma"),
        "efa": ("fabric", "efa"),
        "ofed": ("stack", "doca-ofed"),
    }

    fabric: Annotated[
        FabricName, describe("what the devices speak; without it, what the block of a fabric says, else infiniband")
    ] = "infiniband"
    stack: Annotated[
        Literal["auto", "inbox", "doca-ofed", "erdma-vendor", "efa-vendor"],
        describe("whose drivers and libraries; auto: erdma-vendor for erdma, efa-vendor for efa, else inbox"),
    ] = "auto"
    devices: Annotated[
        tuple[Selector, ...],
        describe(
            "which devices, by pci, driver or netdev, of which all that are given must hold; without any, all"
            " that speak the fabric"
        ),
    ] = ()
    count: Annotated[int, describe("how many such devices the host has; 0: one or more", ge=0, le=256)] = 0
    rate: Annotated[int, describe("Gb/s that each port is to have at least; 0 asks for nothing", ge=0, le=3200)] = 0
    ipoib: Annotated[bool, describe("an IP network interface on each InfiniBand port: ib_ipoib")] = False
    opensm: Annotated[Opensm, describe("the fabric's subnet manager")] = Opensm()
    soft: Annotated[Soft, describe("software devices: rxe or siw, and where")] = Soft()
    memlock: Annotated[
        str,
        describe(
            "memory that login sessions and services may lock: unlimited, or KiB; empty leaves it alone",
            pattern=r"^(unlimited|[1-9][0-9]{0,14})?$",
        ),
    ] = "unlimited"
    ofed: Annotated[Ofed, describe("what is asked of DOCA-OFED")] = Ofed()
    roce: Annotated[Roce, describe("settings of RoCE")] = Roce()
    erdma: Annotated[
        Erdma,
        describe(
            "Alibaba's eRDMA: where its driver comes from, its mode and its MTU. Without installer, url, file"
            " and packages the driver must be there already"
        ),
    ] = Erdma()
    efa: Annotated[
        Efa,
        describe(
            "AWS's EFA: where driver, libfabric and the plugin for NCCL come from. Without installer, url and file they"
            " must be there already"
        ),
    ] = Efa()
    nccl: Annotated[Nccl, describe("which devices NCCL uses, written to /etc/nccl.conf")] = Nccl()

    @property
    def own_stack(self) -> Literal["inbox", "doca-ofed", "erdma-vendor", "efa-vendor"]:
        """The stack, with `auto` resolved."""
        if self.stack != "auto":
            return self.stack
        if self.fabric == "erdma":
            return "erdma-vendor"
        return "efa-vendor" if self.fabric == "efa" else "inbox"
