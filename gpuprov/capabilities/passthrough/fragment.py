"""The `passthrough` block, and the lines of its unit's configuration."""

from typing import Annotated, Literal

from gpuprov.capabilities.base import Context
from gpuprov.catalog import gpus
from gpuprov.host_code.at_boot.passthrough import Config, parse_config
from gpuprov.spec.described import describe
from gpuprov.spec.model import Fragment

# Names in sysfs, by module: https://github.com/torvalds/linux/blob/master/drivers/vfio/pci/nvgrace-gpu/main.c
DRIVERS = {"vfio-pci": "vfio-pci", "nvgrace-gpu-vfio-pci": "nvgrace_gpu_vfio_pci"}
Selector = Annotated[str, describe('"0000:3b:00.0" or a model of gpuprov catalog gpus', min_length=1)]


class Passthrough(Fragment, frozen=True):
    """Whole GPUs for virtual machines: bound to vfio-pci before NVIDIA's driver is loaded, with the IOMMU on.

    GPUs that are not named stay with this host. What a virtual machine or a program has is never moved.
    """

    gpus: Annotated[
        Literal["all"] | tuple[Selector, ...],
        describe("which GPUs are lent: all, or a list of PCI addresses and models; an empty list takes all back"),
    ] = "all"
    nvswitches: Annotated[
        bool, describe("whether the NVSwitches go with all the GPUs of their board, to one virtual machine")
    ] = False
    driver: Annotated[
        Literal["vfio-pci", "nvgrace-gpu-vfio-pci"],
        describe("the GPUs' driver; nvgrace-gpu-vfio-pci is the one for GPUs on a module with a Grace CPU"),
    ] = "vfio-pci"


Ctx = Context[Passthrough]


def is_address(selector: str) -> bool:
    """Return whether this is a PCI address, and no model."""
    return selector.count(":") == 2


def named(block: Passthrough) -> list[tuple[str, tuple[str, ...]]]:
    """Return each entry of gpus, with the address, the PCI ids or the `all` that it stands for."""
    if block.gpus == "all":
        return [("all", ("all",))]
    models = {selector: gpus.find_gpu(selector) for selector in block.gpus if not is_address(selector)}
    ids = {selector: tuple(sorted({pci.id for pci in gpu.pci_ids})) for selector, gpu in models.items() if gpu}
    return [(selector, ids.get(selector, (selector.lower(),))) for selector in block.gpus]


def lines(block: Passthrough) -> tuple[str, ...]:
    """Return the configuration of the unit: `KEY VALUE`."""
    values = dict.fromkeys(value for _, values in named(block) for value in values)
    switches = ["nvswitches all"] * block.nvswitches
    return (f"driver {DRIVERS[block.driver]}", *(f"gpu {value}" for value in values), *switches)


def parse_block(block: Passthrough) -> Config:
    """Return what the unit's program reads of this configuration."""
    return parse_config([line.split() for line in lines(block)])
