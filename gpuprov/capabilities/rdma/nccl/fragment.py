"""The block `rdma.nccl`."""

from typing import Annotated, Literal

import msgspec

from gpuprov.spec.described import describe
from gpuprov.spec.model import Fragment

Variable = Annotated[str, describe("a variable's name: NCCL_CROSS_NIC", pattern=r"^NCCL_[A-Z0-9]+(_[A-Z0-9]+)*$")]
Value = int | Annotated[str, describe("text of one line", pattern=r"^[^\s]([^\n\r]*[^\s])?$")]


class Nccl(Fragment, frozen=True):
    """/etc/nccl.conf, derived from the host's devices, their GIDs, and these fields."""

    manage: Annotated[bool, describe("whether /etc/nccl.conf is gpuprov's, as a whole; false leaves it as it is")] = (
        True
    )
    gid: Annotated[
        Literal["automatic", "index", "none"],
        describe(
            "RoCE: automatic has NCCL (2.21 or newer) choose by the next three; index finds the one by which all "
            "devices have such a GID; none says nothing"
        ),
    ] = "automatic"
    addr_family: Annotated[Literal["ipv4", "ipv6"], describe("the address of the GID")] = "ipv4"
    roce_version: Annotated[int, describe("the type of the GID: RoCE v1 or v2", ge=1, le=2)] = 2
    addr_range: Annotated[str, describe('the network that the address is of: "192.168.4.0/24"; empty: any')] = ""
    socket_ifname: Annotated[
        tuple[Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.-]{1,15}$")], ...],
        describe("interfaces for NCCL's own connections, by their whole names; empty: NCCL chooses"),
    ] = ()
    traffic_class: Annotated[int, describe("NCCL_IB_TC: 106 is DSCP 26 with ECT; -1 says nothing", ge=-1, le=255)] = -1
    service_level: Annotated[int, describe("NCCL_IB_SL; -1 says nothing", ge=-1, le=15)] = -1
    gdr_level: Annotated[
        Literal["", "LOC", "PIX", "PXB", "PHB", "SYS"],
        describe("NCCL_NET_GDR_LEVEL: how far GPU and NIC may be apart for GPUDirect; LOC: never; empty says nothing"),
    ] = ""
    relaxed_ordering: Annotated[
        Literal["", "never", "required", "automatic"],
        describe("NCCL_IB_PCI_RELAXED_ORDERING: 0, 1 or 2; empty says nothing"),
    ] = ""
    sharp: Annotated[
        bool, describe("InfiniBand: reductions in the switches, by the plugin of nccl-rdma-sharp-plugins")
    ] = False
    net_plugin: Annotated[
        str,
        describe(
            "NCCL_NET_PLUGIN: a path, or what is between libnccl-net- and .so; none: NCCL's own network",
            pattern=r"^([A-Za-z0-9_./+-]+)?$",
        ),
    ] = ""
    topo_file: Annotated[
        str, describe("NCCL_TOPO_FILE: a file of the host, compared with its hardware", pattern=r"^(/[^\s]+)?$")
    ] = ""
    topo_source: Annotated[
        str, describe("that file beside the inventory, which is copied to topo_file; empty: it is on the host")
    ] = ""
    settings: Annotated[
        dict[Variable, Value], describe("any other variable of NCCL, as it is to stand in the file")
    ] = {}

    @property
    def paths(self) -> tuple[str, ...]:
        """Files that the settings name, and that must be on the host."""
        named = ("" if self.topo_source else self.topo_file, self.net_plugin)
        return tuple(path for path in named if path.startswith("/"))

    @property
    def library(self) -> str:
        """The plugin that the dynamic linker must find; empty for none, or if a path is named."""
        name = self.net_plugin
        if name == "none" or name.startswith("/") or not (name or self.sharp):
            return ""
        if name.endswith(".so"):
            return name
        return f"libnccl-net-{name}.so" if name else "libnccl-net.so"
