"""The `topology` block."""

from typing import Annotated, Literal

from gpuprov.core.safe_parse import is_whole
from gpuprov.spec.described import describe
from gpuprov.spec.model import Fragment


class Topology(Fragment, frozen=True):
    """The required connections of GPUs, HCAs and NVLinks: checked, never changed. `gpuprov topology HOST` draws the
    actual ones.

    A host without an NVIDIA GPU is refused before anything is changed.
    """

    gpu_hca: Annotated[
        Literal["any", "PIX", "PXB", "PHB", "NODE", "SYS"],
        describe(
            "how far each GPU's nearest HCA may be, in the terms of nvidia-smi topo -m: PIX one PCIe switch, PXB "
            "several, PHB the CPU's host bridge, NODE two host bridges of a NUMA node, SYS anywhere on the host; "
            "any: it may have none"
        ),
    ] = "any"
    rails: Annotated[
        Literal["any", "matched"],
        describe(
            "matched: each GPU has an HCA of its own (or all HCAs are shared by equally many GPUs), no farther than "
            "gpu_hca says, else than PXB"
        ),
    ] = "any"
    same_socket: Annotated[bool, describe("whether each GPU's nearest HCA must hang on the GPU's own CPU socket")] = (
        False
    )
    hcas: Annotated[
        int,
        describe(
            "RDMA devices on the host's PCI bus, without NVLink bridges and SR-IOV functions; 0 does not count them",
            ge=0,
            le=256,
        ),
    ] = 0
    pcie: Annotated[
        Literal["any", "full"],
        describe(
            "full: each PCIe link from a GPU, an HCA or an NVSwitch to its CPU is as wide and as fast as both ends "
            "support; the speed of an idle GPU's link is not judged"
        ),
    ] = "full"
    nvlinks: Annotated[
        str,
        describe(
            'all, any, or a least number in quotes ("18"). NVLinks that are up on each GPU; all: those that '
            "its model has (a card that takes bridges may have none)",
            pattern=r"^(all|any|[1-9][0-9]?)$",
        ),
    ] = "all"


def number(block: Topology) -> int:
    """Return the requested number of NVLinks; 0 for `all` and `any`."""
    return int(block.nvlinks) if is_whole(block.nvlinks) else 0
