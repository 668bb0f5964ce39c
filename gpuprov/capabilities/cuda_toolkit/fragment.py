"""The `cuda_toolkit` block."""

from typing import Annotated

from gpuprov.catalog.cuda import packages as catalogue
from gpuprov.spec.described import describe
from gpuprov.spec.model import Fragment

Version = Annotated[
    str, describe('a toolkit ("12.4") or a release ("12.4.1")', pattern=r"^[0-9]{1,2}\.[0-9]{1,2}(\.[0-9]{1,2})?$")
]


class CudaToolkit(Fragment, frozen=True):
    """CUDA toolkits beside each other, each of one exact release, with cuDNN and NCCL; no driver is ever installed with
    them.

    A transaction that would install, move or remove a package of a driver is refused before anything changes. A toolkit
    that is removed from versions stays installed; `only` removes it.
    """

    versions: Annotated[
        tuple[Version, ...],
        describe(
            'toolkits ("12.4") or releases ("12.4.1"). An installed release of a toolkit is kept; of a '
            "release that is named, every component is of that release too. Without any: those that are "
            "installed, else the newest that the driver runs"
        ),
    ] = ()
    default: Annotated[
        str,
        describe(
            'a toolkit as "12.4", or nothing. /usr/local/cuda leads to it; empty: to the newest of versions',
            pattern=r"^([0-9]{1,2}\.[0-9]{1,2})?$",
        ),
    ] = ""
    parts: Annotated[
        catalogue.Part,
        describe(
            "of every toolkit: toolkit is all of it (8 GB each), minimal-build what compiling needs, "
            "libraries what running needs, without a compiler and headers"
        ),
    ] = "toolkit"
    cudnn: Annotated[
        str,
        describe(
            '"9", "9.5.1" or "9.5.1.17". cuDNN for the CUDA major of the default toolkit; empty: none',
            pattern=r"^([0-9]{1,2}(\.[0-9]{1,3}){0,3})?$",
        ),
    ] = ""
    nccl: Annotated[
        str,
        describe(
            '"2", "2.21" or "2.21.5". NCCL built for the CUDA major of the default toolkit; empty: none',
            pattern=r"^([0-9]{1,2}(\.[0-9]{1,3}){0,2})?$",
        ),
    ] = ""
    path: Annotated[
        bool, describe("whether login shells have /usr/local/cuda/bin in their PATH (/etc/profile.d/gpuprov-cuda.sh)")
    ] = True
    hold: Annotated[
        bool, describe("whether every package of the toolkits, of cuDNN and NCCL is held against upgrades")
    ] = True
    only: Annotated[
        bool,
        describe(
            "whether toolkits that are not in versions are removed, and metapackages that bring a driver or "
            "follow the newest toolkit"
        ),
    ] = False
