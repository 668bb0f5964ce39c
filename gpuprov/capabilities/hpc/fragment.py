"""The `hpc` block."""

from typing import Annotated, Literal

from gpuprov.catalog import hpc as catalogue
from gpuprov.spec.described import describe
from gpuprov.spec.model import Fragment, HostSpec, Sha256
from gpuprov.spec.url import build_pattern


class Hpcx(Fragment, frozen=True):
    """An archive of NVIDIA's HPC-X, named as NVIDIA names it: what it was built for is read from its name. Without url
    and file, /opt/hpcx must lead to one already."""

    url: Annotated[
        str,
        describe(
            "the address of hpcx-vVERSION-gcc-STACK-DISTRIBUTION-cudaN-ARCH.tbz, without user name, password and "
            "query (a signed link runs out: fetch it, and name the file); the host fetches it",
            pattern=build_pattern(r"/[^\s]+\.(tbz|tar\.bz2)"),
        ),
    ] = ""
    file: Annotated[str, describe("or that file beside the inventory, which is copied to the host")] = ""
    sha256: Sha256 = ""


class Hpc(Fragment, frozen=True):
    """Open MPI and UCX in step with the RDMA stack of `rdma`; with HPC-X also NCCL's SHARP plugin, if rdma.nccl.sharp
    asks for it."""

    IMPLIES = {"hpcx": ("mpi", "hpcx")}

    mpi: Annotated[
        Literal["openmpi", "hpcx"],
        describe(
            "openmpi: packages of DOCA-OFED, if rdma.stack is that, else of the distribution; hpcx: NVIDIA's HPC-X, "
            "which has Open MPI, UCX, HCOLL, SHARP and NCCL's plugin for it"
        ),
    ] = "openmpi"
    hpcx: Annotated[Hpcx, describe("the archive of HPC-X, unpacked to /opt")] = Hpcx()
    cuda_aware: Annotated[
        bool, describe("whether MPI and UCX must take GPU memory, as ompi_info and ucx_info report it")
    ] = False
    hold: Annotated[bool, describe("Hold the packages of Open MPI and UCX against upgrades")] = True


def find_archive(block: Hpc) -> catalogue.Archive | None:
    """Return what the name of the requested archive says; None without an archive."""
    return catalogue.parse_archive(block.hpcx.url or block.hpcx.file)


def needs_plugin(host: HostSpec, block: Hpc) -> bool:
    """True if HPC-X brings NCCL the plugin that rdma.nccl.sharp asks for."""
    nccl = getattr(host.capabilities.get("rdma"), "nccl", None)
    return block.mpi == "hpcx" and bool(getattr(nccl, "sharp", False))
