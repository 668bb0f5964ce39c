"""The block `rdma.erdma`."""

from typing import Annotated, Literal

from gpuprov.spec.described import describe
from gpuprov.spec.model import Fragment, Sha256
from gpuprov.spec.url import build_pattern

# Parameters of Alibaba's driver 0.2.37 except compat_mode: https://github.com/alibaba/elastic-rdma-drivers kernel/src
Parameter = Literal[
    "vector_num", "default_cc", "rand_qpn", "legacy_mode", "use_zeronet", "reserve_ports_base", "wwi_perf"
]


class Erdma(Fragment, frozen=True):
    """Alibaba's eRDMA: the source of its driver, which of its two modes it runs in, and the MTU that goes with the
    instance.

    Without installer, url, file and packages the driver must be installed already, as in Alibaba's own images.
    """

    installer: Annotated[
        str,
        describe(
            'a version of Alibaba\'s installer whose address and checksum gpuprov knows: "1.5.7"',
            pattern=r"^([0-9]+(\.[0-9]+){1,3})?$",
        ),
    ] = ""
    url: Annotated[
        str,
        describe(
            "or the address of erdma_installer-VERSION.tar.gz, without user name, password and "
            "query (a signed link runs out: fetch it, and name the file); the host fetches it",
            pattern=build_pattern(r"/[^\s]+\.tar\.gz"),
        ),
    ] = ""
    file: Annotated[
        str, describe("or erdma_installer-VERSION.tar.gz beside the inventory, which is copied to the host")
    ] = ""
    sha256: Sha256 = ""
    packages: Annotated[
        tuple[
            Annotated[
                str,
                describe(
                    "a package's name with rdma, ibverbs or ibumad in it",
                    pattern=r"^[a-z0-9+.-]*(rdma|ibverbs|ibumad)[a-z0-9+.-]*$",
                ),
            ],
            ...,
        ],
        describe("or packages of the driver in repositories that the host has: [erdma]"),
    ] = ()
    compat_mode: Annotated[
        bool | None,
        describe(
            "true: RoCE-like, as NCCL needs it; false: iWARP. The two do not talk to each other. "
            "Required where the fabric is erdma"
        ),
    ] = None
    mtu: Annotated[
        Literal["", "jumbo", "standard"],
        describe(
            "the instance's jumbo frame setting: jumbo is MTU 8500, standard is 1400. It is required where "
            "the fabric is erdma"
        ),
    ] = ""
    parameters: Annotated[
        dict[Parameter, bool | int], describe("other parameters of Alibaba's driver, set as it is loaded")
    ] = {}
