"""The block `rdma.ofed`."""

from typing import Annotated, Literal

from gpuprov.spec.described import describe
from gpuprov.spec.model import Fragment, Sha256
from gpuprov.spec.url import build_pattern

Key = Literal[
    "ONBOOT",
    "ALLOW_STOP",
    "FORCE_MODE",
    "UMAD_LOAD",
    "UVERBS_LOAD",
    "RDMA_CM_LOAD",
    "RDMA_UCM_LOAD",
    "MLX5_LOAD",
    "IPOIB_LOAD",
    "SET_IPOIB_CM",
    "SRP_LOAD",
]


class Ofed(Fragment, frozen=True):
    """NVIDIA's DOCA-OFED in place of the kernel's own RDMA drivers. Its packages come from the doca-host package named
    here, or from repositories that the host already has."""

    version: Annotated[
        str,
        describe(
            'the OFED level that ofed_info tells: "25.10", or to the last figure "25.10-1.7.1"; empty: any',
            pattern=r"^$|^[0-9]{2}\.[0-9]{2}(-[0-9]+(\.[0-9]+)*)?$",
        ),
    ] = ""
    url: Annotated[
        str,
        describe(
            "the doca-host package, https://HOST/PATH.deb or .rpm, without user name, password and "
            "query (a signed link runs out: fetch it, and name the file); the host fetches it",
            pattern=build_pattern(r"/[^\s]+\.(deb|rpm)"),
        ),
    ] = ""
    file: Annotated[str, describe("or a file beside the inventory, which is copied to the host")] = ""
    sha256: Sha256 = ""
    openib_conf: Annotated[
        dict[Key, bool | Literal["auto"]],
        describe("keys of /etc/infiniband/openib.conf: yes or no (auto of SET_IPOIB_CM); the others are left"),
    ] = {}
    hold: Annotated[bool, describe("Hold DOCA-OFED's packages against upgrades")] = True
