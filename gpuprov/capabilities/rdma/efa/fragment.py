"""The block `rdma.efa`."""

from typing import Annotated, Literal

from gpuprov.spec.described import describe
from gpuprov.spec.model import Fragment, Sha256
from gpuprov.spec.url import build_pattern


class Efa(Fragment, frozen=True):
    """AWS's Elastic Fabric Adapter: the source of driver, libfabric and the plugin for NCCL.

    Without installer, url and file they must be installed already, as in AWS's own Deep Learning images.
    """

    installer: Annotated[
        str,
        describe(
            'a version of AWS\'s installer whose checksum gpuprov knows: "1.47.0"',
            pattern=r"^([0-9]+(\.[0-9]+){1,3})?$",
        ),
    ] = ""
    url: Annotated[
        str,
        describe(
            "or the address of aws-efa-installer-VERSION.tar.gz, without user name, password and "
            "query (a signed link runs out: fetch it, and name the file); the host fetches it",
            pattern=build_pattern(r"/[^\s]+\.tar\.gz"),
        ),
    ] = ""
    file: Annotated[
        str, describe("or aws-efa-installer-VERSION.tar.gz beside the inventory, which is copied to the host")
    ] = ""
    sha256: Sha256 = ""
    plugin: Annotated[bool, describe("aws-ofi-nccl, by which NCCL uses EFA; without it NCCL takes TCP sockets")] = True
    mpi: Annotated[
        Literal["none", "openmpi4", "openmpi5", "both"],
        describe("which Open MPI the installer brings, in /opt/amazon/openmpi"),
    ] = "none"
    gpudirect: Annotated[
        bool, describe("whether the driver must be able to reach GPU memory by itself (file p2p), not by DMA-BUF")
    ] = False
