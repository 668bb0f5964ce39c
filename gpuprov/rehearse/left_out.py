"""What of a spec no simulated host of a kind has: the spec without it, and what was left out, each with its reason."""

from typing import Any

import msgspec

from gpuprov.capabilities import CAPABILITIES
from gpuprov.capabilities.container_toolkit.fragment import ContainerToolkit
from gpuprov.capabilities.gpudirect_rdma.decision import decide, ground
from gpuprov.capabilities.gpudirect_rdma.fragment import GpudirectRdma
from gpuprov.capabilities.pcie.fragment import Pcie, model
from gpuprov.capabilities.rdma.fragment import Opensm, Rdma
from gpuprov.capabilities.topology.fragment import Topology
from gpuprov.catalog.pcie import list_processors
from gpuprov.rehearse.real_hosts import leave_out_names
from gpuprov.rehearse.shape_engines import PACKAGED, says_engines
from gpuprov.rehearse.shape_rdma import MOST, RATES
from gpuprov.simulate import distributions
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import Fragment, HostSpec

NOT_REHEARSED = {capability.name: capability.not_rehearsed for capability in CAPABILITIES if capability.not_rehearsed}
NO_FABRIC = {
    "iwarp": "no simulated host has its devices",
    "efa": "AWS's own installer and libfabric find nothing to serve on a simulated host",
}
X86 = ("intel", "amd")
CONTAINER_ONLY = "a machine's HCAs are PCI functions without RDMA devices; --kind container has them"
# Fields of other blocks about the devices of `rdma`, and the values that ask for nothing.
OF_DEVICES: dict[type[Fragment], dict[str, Any]] = {
    Topology: {"gpu_hca": "any", "rails": "any", "same_socket": False, "hcas": 0},
    Pcie: {"max_read_request": 0, "affinity": "keep"},
}


def leave_out(spec: HostSpec, values: dict[str, Any]) -> tuple[HostSpec, list[str]]:
    """Return what of the spec can be rehearsed, and what was left out. `values`: `kind` and `distribution` of the
    simulated host, and what the inventory says of it."""
    left: list[str] = []
    kind = values["kind"]
    blocks: dict[str, Fragment] = dict(spec.capabilities)
    _remove_rdma(blocks, values, left)
    _remove_parts_of_rdma(blocks, left)
    _remove_hcas(blocks, left)
    _remove_erdma_interfaces(blocks, left)
    _remove_peer_memory(blocks, spec, left)
    _remove_engines(blocks, values, left)
    if kind == "machine" and blocks.pop("cgpu", None):
        left.append("cgpu: it is simulated as files, in containers; --kind container has them")
    _remove_processor(blocks, spec, left)
    if kind == "container":
        _remove_sysctls(blocks, left)
        _remove_acs_masks(blocks, left)
    for name in [name for name in blocks if name in NOT_REHEARSED]:
        del blocks[name]
        left.append(f"{name}: {NOT_REHEARSED[name]}")
    leave_out_names(blocks, left)
    return msgspec.structs.replace(spec, capabilities=blocks), left


def _remove_rdma(blocks: dict[str, Fragment], values: dict[str, Any], left: list[str]) -> None:
    """Remove RDMA that no simulated host of this kind has, and what presupposes it."""
    rdma, kind = blocks.get("rdma"), values["kind"]
    if not isinstance(rdma, Rdma):
        return
    why = NO_FABRIC.get(rdma.fabric, "")
    if rdma.fabric == "erdma" and distributions.find(str(values["distribution"])).rpms:
        why = "the stand-in of Alibaba's installer has a package for apt"
    if not why and rdma.fabric == "soft" and kind == "container":
        why = "it needs a kernel of the host's own; --kind machine has one"
    if not why and rdma.fabric != "soft" and kind == "machine":
        why = CONTAINER_ONLY
    if not why:
        return
    del blocks["rdma"]
    left.append(f"rdma: fabric {rdma.fabric}: {why}")
    if blocks.pop("gpudirect_rdma", None):
        left.append("gpudirect_rdma: rdma is left out, whose devices it is for")
    for name, block in list(blocks.items()):
        if isinstance(block, Topology) and rdma.fabric in ("infiniband", "roce"):
            continue  # a machine has its HCAs on the PCI bus
        nothing = OF_DEVICES.get(type(block), {})
        asked = {field: value for field, value in nothing.items() if getattr(block, field) != value}
        if asked:
            blocks[name] = msgspec.structs.replace(block, **asked)
            left.append(f"{name}.{', '.join(asked)}: rdma is left out, whose devices they are about")


def _remove_parts_of_rdma(blocks: dict[str, Fragment], left: list[str]) -> None:
    """Remove what needs a live fabric, or more than the simulated ports have."""
    rdma = blocks.get("rdma")
    if not isinstance(rdma, Rdma) or rdma.fabric in ("soft", "erdma"):
        return
    changed: dict[str, Any] = {}
    if rdma.rate > RATES[-1]:
        left.append(f"rdma.rate {rdma.rate}: simulated ports have up to {RATES[-1]} Gb/s, which is asked for instead")
        changed["rate"] = RATES[-1]
    if rdma.ipoib:
        left.append("rdma.ipoib: simulated HCAs have no InfiniBand network interfaces")
        changed["ipoib"] = False
    if rdma.opensm.hosts:
        left.append("rdma.opensm.hosts: opensm finds no fabric that it could manage")
        changed["opensm"] = Opensm(elsewhere=True)
    if rdma.nccl.sharp:
        left.append("rdma.nccl.sharp: its plugin comes with HPC-X, which is not rehearsed")
        changed["nccl"] = msgspec.structs.replace(rdma.nccl, sharp=False)
    blocks["rdma"] = msgspec.structs.replace(rdma, **changed)


def _remove_hcas(blocks: dict[str, Fragment], left: list[str]) -> None:
    """Remove HCAs beyond the simulated ones, and those of another fabric than that of `rdma`, as storage has them."""
    rdma, topology = blocks.get("rdma"), blocks.get("topology")
    if not isinstance(rdma, Rdma) or rdma.fabric not in ("infiniband", "roce"):
        return
    if rdma.count > MOST:
        left.append(f"rdma.count {rdma.count}: {MOST} HCAs are simulated")
        blocks["rdma"] = rdma = msgspec.structs.replace(rdma, count=MOST)
    if isinstance(topology, Topology) and topology.hcas > (most := rdma.count or MOST):
        left.append(f"topology.hcas {topology.hcas}: {most} HCAs are simulated, all of fabric {rdma.fabric}")
        blocks["topology"] = msgspec.structs.replace(topology, hcas=most)


def _remove_erdma_interfaces(blocks: dict[str, Fragment], left: list[str]) -> None:
    """Remove interfaces beyond the simulated one."""
    rdma = blocks.get("rdma")
    if isinstance(rdma, Rdma) and rdma.fabric == "erdma" and rdma.count > 1:
        left.append(f"rdma.count {rdma.count}: one eRDMA interface is simulated")
        blocks["rdma"] = msgspec.structs.replace(rdma, count=1)


def _remove_peer_memory(blocks: dict[str, Fragment], spec: HostSpec, left: list[str]) -> None:
    """Remove the peer-memory modules, which are built against OFED's own ib_core."""
    block = blocks.get("gpudirect_rdma")
    if isinstance(block, GpudirectRdma) and (chosen := decide(ground(spec), block).method) not in ("", "dmabuf"):
        del blocks["gpudirect_rdma"]
        left.append(f"gpudirect_rdma: {chosen} is built against OFED's kernel modules, of which the stand-in has none")


def _remove_engines(blocks: dict[str, Fragment], values: dict[str, Any], left: list[str]) -> None:
    """Remove container engines that no simulated host has, and users whom none knows."""
    block = blocks.get("container_toolkit")
    if not isinstance(block, ContainerToolkit) or says_engines(values):
        return
    if block.rootless:
        left.append(f"container_toolkit.rootless {', '.join(block.rootless)}: no simulated host knows these users")
        block = msgspec.structs.replace(block, rootless=())
    kept = tuple(name for name in block.runtimes if name in (*PACKAGED, "containerd"))
    place = "container_toolkit.runtimes" if kept else "container_toolkit: runtimes"
    if without := [name for name in block.runtimes if name not in kept]:
        left.append(f"{place} {', '.join(without)}: no simulated host has {'it' if len(without) == 1 else 'them'}")
    if block.runtimes and not kept:
        del blocks["container_toolkit"]
    else:
        blocks["container_toolkit"] = msgspec.structs.replace(block, runtimes=kept)


def _remove_sysctls(blocks: dict[str, Fragment], left: list[str]) -> None:
    """Remove kernel settings that containers share with the machine below them, which keeps its own."""
    # Of net.core, a network namespace has net.core.somaxconn in every supported kernel:
    # https://www.kernel.org/doc/html/latest/admin-guide/sysctl/net.html
    kernel = blocks.get("kernel")
    if not isinstance(kernel, Kernel):
        return
    shared = [key for key in kernel.sysctl if not key.startswith("net.") or key.startswith("net.core.")]
    shared = [key for key in shared if key != "net.core.somaxconn"]
    if shared:
        left.append(f"kernel.sysctl {', '.join(shared)}: of the machine below a container; --kind machine has them")
        own: dict[str, Any] = {key: value for key, value in kernel.sysctl.items() if key not in shared}
        blocks["kernel"] = msgspec.structs.replace(kernel, sysctl=own)


def _remove_acs_masks(blocks: dict[str, Fragment], left: list[str]) -> None:
    """Remove the masks of rdma_topo: rdma-core's tool computes them of the machine's own switches, for its kernel."""
    pcie = blocks.get("pcie")
    if isinstance(pcie, Pcie) and pcie.acs == "rdma_topo":
        left.append("pcie.acs rdma_topo: it computes a kernel command line, which a container has not")
        blocks["pcie"] = msgspec.structs.replace(pcie, acs="keep")


def _remove_processor(blocks: dict[str, Fragment], spec: HostSpec, left: list[str]) -> None:
    """Remove IOMMU parameters of another processor: a simulated host has this machine's, an x86."""
    pcie = blocks.get("pcie")
    if not isinstance(pcie, Pcie) or pcie.iommu == "keep":
        return
    if not {*X86} & {*list_processors(pcie.cpu, model(spec))}:
        left.append(
            f"pcie.iommu {pcie.iommu}: its parameters are those of Arm, and no simulated host has an Arm processor"
        )
        blocks["pcie"] = msgspec.structs.replace(pcie, iommu="keep", cpu="auto")
    elif pcie.cpu in X86:
        left.append(f"pcie.cpu {pcie.cpu}: a simulated host has this machine's processor, Intel's or AMD's")
        blocks["pcie"] = msgspec.structs.replace(pcie, cpu="auto")
