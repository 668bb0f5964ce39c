"""The `gpudirect_rdma` block."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from gpuprov.spec.model import Fragment

# Values of NVreg_GrdmaPciTopoCheckOverride by the words of the spec.
OVERRIDES = {"driver": 0, "allow": 1, "deny": 2}


class Gdrcopy(Fragment, frozen=True):
    """gdrcopy: small copies to and from GPU memory by the CPU."""

    WHEN_PRESENT = {"install": True}

    install: Annotated[
        bool,
        msgspec.Meta(
            description="whether gdrcopy is there: the library, and the module gdrdrv with its device node /dev/gdrdrv "
            "now and at each boot, from the host's package sources, as a gdrcopy that is there does; false leaves "
            "what is there alone"
        ),
    ] = False
    tests: Annotated[
        bool, msgspec.Meta(description="whether its test programs are installed, too (gdrcopy_sanity, gdrcopy_copybw)")
    ] = False


class GpudirectRdma(Fragment, frozen=True):
    """The method by which RDMA devices reach the memory of GPUs: dma-buf, or a peer-memory module.

    For nvidia_peermem, DKMS rebuilds the driver's modules if they were built before OFED, and the module is loaded
    after the RDMA stack, now and at each boot.
    """

    method: Annotated[
        Literal["auto", "dmabuf", "nvidia_peermem", "nv_peer_mem"],
        msgspec.Meta(
            description="auto: dmabuf where GPU, kernel modules, driver and kernel allow it, else nvidia_peermem; "
            "dmabuf needs open "
            "kernel modules and no module of its own; nvidia_peermem comes with the driver and needs DOCA-OFED's "
            "ib_core; nv_peer_mem is its deprecated forerunner, which must be installed already"
        ),
    ] = "auto"
    peerdirect_support: Annotated[
        int,
        msgspec.Meta(
            ge=0, le=1, description="parameter of nvidia_peermem: 1 for MLNX_OFED 4.9 LTS, 0 for anything newer"
        ),
    ] = 0
    persistent_api_support: Annotated[
        int,
        msgspec.Meta(
            ge=0,
            le=1,
            description="parameter of nvidia_peermem from driver 560 on: 1 pins GPU memory, 0 has the legacy "
            "client, too",
        ),
    ] = 1
    topology_check: Annotated[
        Literal["driver", "allow", "deny"],
        msgspec.Meta(
            description="the driver's own check of the PCI topology for dma-buf and peer memory "
            "(NVreg_GrdmaPciTopoCheckOverride, from driver 570 on and before 595): driver leaves it to the driver, "
            "allow and deny override it"
        ),
    ] = "driver"
    gdrcopy: Annotated[Gdrcopy, msgspec.Meta(description="gdrcopy beside it")] = Gdrcopy()


def parameters(block: GpudirectRdma) -> dict[str, int]:
    """Return the parameters of nvidia_peermem that differ from the module's defaults."""
    settings = {
        "peerdirect_support": (block.peerdirect_support, 0),
        "persistent_api_support": (block.persistent_api_support, 1),
    }
    return {name: value for name, (value, default) in settings.items() if value != default}
