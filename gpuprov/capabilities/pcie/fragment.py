"""The `pcie` block, and the lines of its configuration on the host."""

from typing import Annotated, Literal

import msgspec

from gpuprov.capabilities.base import Context
from gpuprov.catalog import gpus
from gpuprov.catalog import pcie as catalogue
from gpuprov.facts.probes.host import system, virtualization
from gpuprov.spec.described import describe
from gpuprov.spec.model import Fragment, HostSpec

REASON = "the running kernel was started without the ACS masks of rdma_topo"
ReadRequest = Annotated[int, msgspec.Meta(ge=0, le=4096)]


class Pcie(Fragment, frozen=True):
    """IOMMU mode, ACS, relaxed ordering, maximum read request and interrupt affinity of GPUs and HCAs, again at each
    boot.

    Settings that a reboot or a reset of a function loses are applied by a boot unit, with setpci, and read back.
    """

    iommu: Annotated[
        Literal["keep", "passthrough", "translated", "strict", "disabled"],
        describe(
            "what the IOMMU does with the DMA of GPUs and HCAs: passthrough lets it through, translated and "
            "strict do not; keep leaves it alone"
        ),
    ] = "keep"
    cpu: Annotated[
        Literal["auto", "intel", "amd", "arm"],
        describe("whose IOMMU the kernel parameters are for; auto: arm with Grace GPUs, else those of Intel and AMD"),
    ] = "auto"
    acs: Annotated[
        Literal["keep", "disabled", "rdma_topo"],
        describe(
            "Access Control Services above GPUs and HCAs, on bare metal only. disabled writes zeros; "
            "rdma_topo has rdma-core's own tool compute them, which Grace, ConnectX-8 and later need"
        ),
    ] = "keep"
    max_read_request: Annotated[
        ReadRequest, describe("bytes of a read request of HCAs at most, 128 to 4096; 0 leaves it alone")
    ] = 0
    gpu_max_read_request: Annotated[
        ReadRequest, describe("bytes of a read request of GPUs at most, 128 to 4096; 0 leaves it alone")
    ] = 0
    relaxed_ordering: Annotated[
        Literal["keep", "enabled", "disabled"],
        describe("whether GPUs and HCAs may relax the order of what they write: bit 4 of DevCtl"),
    ] = "keep"
    affinity: Annotated[
        Literal["keep", "local"],
        describe("interrupts of HCAs: local keeps them on CPUs of their own NUMA node, also under irqbalance"),
    ] = "keep"


def lines(block: Pcie) -> tuple[str, ...]:
    """Return the configuration of the boot unit: `SETTING VALUE`. IOMMU mode and rdma_topo's masks belong to the kernel
    command line."""
    values = {
        "acs": block.acs if block.acs == "disabled" else "",
        "max_read_request": str(block.max_read_request or ""),
        "gpu_max_read_request": str(block.gpu_max_read_request or ""),
        "relaxed_ordering": block.relaxed_ordering.removesuffix("keep"),
        "affinity": block.affinity.removesuffix("keep"),
    }
    return tuple(f"{key} {value}" for key, value in values.items() if value)


def settings(block: Pcie) -> dict[str, str]:
    """Return these lines as the program of the boot unit has them."""
    return dict(line.split() for line in lines(block))


def model(host: HostSpec) -> str:
    """Return the catalogue's key of the GPUs, however the spec names them."""
    gpu = gpus.find_gpu(host.gpu.model) if host.gpu else None
    return gpu.key if gpu else ""


Ctx = Context[Pcie]


def guest(ctx: Ctx) -> str:
    """Return the hypervisor of the virtual machine; empty on bare metal, and in a container, whose machine is
    another."""
    return "" if ctx.facts.get(system.CONTAINER) else ctx.facts.get(virtualization.MACHINE).kind


def explain_policy(command: str, *, needed: bool) -> str:
    """Explain how the command line of a running irqbalance differs from what is needed; empty if it does not."""
    if (catalogue.POLICY in command) == needed:
        return ""
    return f"irqbalance runs with{'out' * needed} gpuprov's policy: {command.strip()}"
