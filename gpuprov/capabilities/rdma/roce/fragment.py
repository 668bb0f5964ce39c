"""The block `rdma.roce`, and the lines of its configuration on the host."""

from typing import Annotated, Literal

import msgspec

from gpuprov.spec.described import describe
from gpuprov.spec.model import Fragment

UNSET = -1
Priority = Literal[0, 1, 2, 3, 4, 5, 6, 7, "none"]
Dscp = Annotated[str, describe('a DSCP from 0 to 63, in quotes: "26"', pattern=r"^([0-9]|[1-5][0-9]|6[0-3])$")]
Mapped = Annotated[int, msgspec.Meta(ge=0, le=7)]


class Roce(Fragment, frozen=True):
    """Settings of RoCE ports. They are the fabric's policy, which the switches share: none has a default, and settings
    that are not given are left as they are."""

    trust: Annotated[
        Literal["", "dscp", "pcp"],
        describe("by what a port sorts packets into priorities: DSCP, or PCP of the VLAN tag; empty leaves it"),
    ] = ""
    pfc: Annotated[
        tuple[Priority, ...],
        describe(
            "the priorities with priority flow control, the others are without; [none]: without on all; empty"
            " leaves them"
        ),
    ] = ()
    dscp2prio: Annotated[
        dict[Dscp, Mapped], describe('priorities of single DSCPs: {"26": 3}; the others are left')
    ] = {}
    mode: Annotated[
        Literal["", "v1", "v2"], describe("the RoCE version that connections by rdma_cm have; empty leaves it")
    ] = ""
    tos: Annotated[
        int,
        describe(
            "type of service of connections by rdma_cm: DSCP * 4 + ECN bits, 0 to 255; -1 leaves it", ge=UNSET, le=255
        ),
    ] = UNSET
    traffic_class: Annotated[
        int,
        describe(
            "traffic class that all RoCE traffic of a device gets, 0 to 255, whatever an application says; -1 "
            "leaves it",
            ge=UNSET,
            le=255,
        ),
    ] = UNSET
    ecn: Annotated[
        tuple[Priority, ...],
        describe(
            "the priorities with congestion control by ECN, as notification and as reaction point, the others"
            " are without; [none]: without on all; empty leaves them"
        ),
    ] = ()
    cnp_dscp: Annotated[
        int, describe("DSCP of congestion notification packets, 0 to 63; -1 leaves it", ge=UNSET, le=63)
    ] = UNSET
    cnp_802p_prio: Annotated[
        int, describe("802.1p priority of congestion notification packets, 0 to 7; -1 leaves it", ge=UNSET, le=7)
    ] = UNSET
    mtu: Annotated[
        int,
        describe(
            "MTU of the ports' network interfaces in bytes, 68 to 65535; RoCE itself takes the largest of 256, 512, "
            "1024, 2048, 4096 that fits; -1 leaves it",
            ge=UNSET,
            le=65535,
        ),
    ] = UNSET
