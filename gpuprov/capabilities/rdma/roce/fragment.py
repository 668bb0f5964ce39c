"""The block `rdma.roce`, and the lines of its configuration on the host."""

from typing import Annotated, Literal

import msgspec

from gpuprov.spec.model import Fragment

UNSET = -1
Priority = Literal[0, 1, 2, 3, 4, 5, 6, 7, "none"]
Dscp = Annotated[
    str, msgspec.Meta(pattern=r"^([0-9]|[1-5][0-9]|6[0-3])$", description='a DSCP from 0 to 63, in quotes: "26"')
]
Mapped = Annotated[int, msgspec.Meta(ge=0, le=7)]


class Roce(Fragment, frozen=True):
    """Settings of RoCE ports. They are the fabric's policy, which the switches share: none has a default, and settings
    that are not given are left as they are."""

    trust: Annotated[
        Literal["", "dscp", "pcp"],
        msgspec.Meta(
            description="by what a port sorts packets into priorities: DSCP, or PCP of the VLAN tag; empty leaves it"
        ),
    ] = ""
    pfc: Annotated[
        tuple[Priority, ...],
        msgspec.Meta(
            description="the priorities with priority flow control, the others are without; [none]: without on all; empty"
            " leaves them"
        ),
    ] = ()
    dscp2prio: Annotated[
        dict[Dscp, Mapped], msgspec.Meta(description='priorities of single DSCPs: {"26": 3}; the others are left')
    ] = {}
    mode: Annotated[
        Literal["", "v1", "v2"],
        msgspec.Meta(description="the RoCE version that connections by rdma_cm have; empty leaves it"),
    ] = ""
    tos: Annotated[
        int,
        msgspec.Meta(
            ge=UNSET,
            le=255,
            description="type of service of connections by rdma_cm: DSCP * 4 + ECN bits, 0 to 255; -1 leaves it",
        ),
    ] = UNSET
    traffic_class: Annotated[
        int,
        msgspec.Meta(
            ge=UNSET,
            le=255,
            description="traffic class that all RoCE traffic of a device gets, 0 to 255, whatever an application says; -1 leaves it",
        ),
    ] = UNSET
    ecn: Annotated[
        tuple[Priority, ...],
        msgspec.Meta(
            description="the priorities with congestion control by ECN, as notification and as reaction point, the others"
            " are without; [none]: without on all; empty leaves them"
        ),
    ] = ()
    cnp_dscp: Annotated[
        int, msgspec.Meta(ge=UNSET, le=63, description="DSCP of congestion notification packets, 0 to 63; -1 leaves it")
    ] = UNSET
    cnp_802p_prio: Annotated[
        int,
        msgspec.Meta(
            ge=UNSET, le=7, description="802.1p priority of congestion notification packets, 0 to 7; -1 leaves it"
        ),
    ] = UNSET
    mtu: Annotated[
        int,
        msgspec.Meta(
            ge=UNSET,
            le=65535,
            description="MTU of the ports' network interfaces in bytes, 68 to 65535; RoCE itself takes the largest of 256, 512, 1024, "
            "2048, 4096 that fits; -1 leaves it",
        ),
    ] = UNSET
