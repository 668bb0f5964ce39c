"""Decision which method a host has, and why: by the spec alone, or by the host's facts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from gpuprov.capabilities.driver import find_requested_branch, find_requested_version
from gpuprov.capabilities.gpudirect_rdma.fragment import GpudirectRdma
from gpuprov.catalog import drivers, gpus
from gpuprov.catalog.rdma import gpudirect as catalogue
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.host import pci
from gpuprov.facts.probes.rdma.gpudirect import GPUDIRECT, KernelState
from gpuprov.spec.model import HostSpec

PROBES = (GPUDIRECT, pci.NVIDIA_FUNCTIONS)
Flavour = Literal["", "open", "proprietary"]
EFA = "gpudirect_rdma: false, and rdma.efa.gpudirect: true, which AWS's own driver does"
OFED = "rdma: {stack: doca-ofed}"
OPEN = "nvidia_driver: {kernel_modules: open}"


class Ground(msgspec.Struct, frozen=True, kw_only=True):
    """The basis of the decision. Empty values are unknown."""

    gpu: gpus.Gpu | None = None
    # Set if none of the GPUs has GPUDirect RDMA by any method, with the first of them in `gpu`.
    excluded: catalogue.Excluded | None = None
    flavour: Flavour = ""
    branch: int = 0
    # Those that modules must work for.
    kernels: tuple[str, ...] = ()
    fabric: str = ""
    stack: str = ""
    precompiled: bool = False
    dmabuf: str = ""
    # Why no kernel module for peer memory can work, by the host's facts; empty also if there are no facts.
    peer: str = ""

    def describe(self) -> str:
        """Return the basis in words: `A100-PCIE-40GB (Ampere), open kernel modules, driver 580, kernel
        6.8.0-60-generic`."""
        words = [f"{self.gpu.key} ({self.gpu.arch})"] if self.gpu else []
        words += [f"{self.flavour} kernel modules"] * bool(self.flavour) + [f"driver {self.branch}"] * bool(self.branch)
        return ", ".join([*words, *(f"kernel {kernel}" for kernel in self.kernels[:1])])


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """`method` is empty if it cannot be determined, and if none works: then `problem` and `fix` give the reason."""

    method: Literal["", "dmabuf", "nvidia_peermem", "nv_peer_mem"] = ""
    reason: str = ""
    problem: str = ""
    fix: str = ""


def _list_unset(kernels: Iterable[KernelState], *, ofed: bool) -> list[str]:
    """Return options without which a kernel has no DMA-BUF for RDMA. ofed: which brings RDMA modules of its own
    configuration."""
    needed = [option.key for option in catalogue.read_gpudirect_file().kernel_options]
    return [
        f"kernel {kernel.release} has no {option}"
        for kernel in kernels
        if kernel.options is not None
        for option in needed
        if option not in kernel.options and not (option.startswith("CONFIG_INFINIBAND") and ofed)
    ]


def ground(host: HostSpec, facts: Facts | None = None) -> Ground:
    """Return the known properties of a host: from its spec, and from its facts if there are any."""
    driver: Any = host.capabilities.get("nvidia_driver")
    rdma: Any = host.capabilities.get("rdma")
    gpu = gpus.find_gpu(host.gpu.model) if host.gpu else None
    version = find_requested_version(host)
    branch = find_requested_branch(host)
    known: dict[str, Any] = {
        "fabric": getattr(rdma, "fabric", ""),
        "stack": getattr(rdma, "own_stack", ""),
        "precompiled": getattr(driver, "build", "dkms") == "precompiled",
    }
    if facts is None:
        out = excluded([gpu])
        return Ground(gpu=gpu, excluded=out, flavour=_derive_flavour(driver, gpu, branch), branch=branch, **known)
    state = facts.get(GPUDIRECT)
    targets = state.targets()
    models = on_bus(facts)
    gpu = next((model for model in models if model), gpu)
    disk = [kernel for kernel in targets if kernel.nvidia]
    if not branch and disk:
        branch = int(drivers.derive_branch(disk[-1].nvidia))
    flavour = _derive_flavour(driver, gpu, branch if version or not disk else 0)
    if not flavour and disk:
        flavour = "open" if disk[-1].open else "proprietary"
    ofed = bool(state.ofed) or known["stack"] == "doca-ofed"
    return Ground(
        gpu=gpu,
        excluded=excluded(models or [gpu]),
        flavour=flavour,
        branch=branch,
        kernels=tuple(kernel.release for kernel in targets),
        dmabuf="; ".join(_list_unset(targets, ofed=ofed)[:2]),
        peer=_explain_no_peer_memory(host, facts),
        **known,
    )


def on_bus(facts: Facts) -> list[gpus.Gpu | None]:
    """Return the host's GPUs; None for each that the catalogue does not know."""
    return [gpus.find_by_pci_id(gpu.identifier) for gpu in pci.gpus(facts.get(pci.NVIDIA_FUNCTIONS))]


def excluded(models: Iterable[gpus.Gpu | None]) -> catalogue.Excluded | None:
    """Return why none of these GPUs has GPUDirect RDMA; None if one may have it, as an unknown GPU may."""
    reasons = [catalogue.find_excluded(gpu) if gpu else None for gpu in models]
    return reasons[0] if reasons and all(reasons) else None


def _derive_flavour(driver: Any, gpu: gpus.Gpu | None, branch: int) -> Flavour:
    """Return the flavour that the spec leads to; empty if it does not determine one."""
    flavour = getattr(driver, "kernel_modules", "auto")
    if flavour in ("open", "proprietary"):
        return "open" if flavour == "open" else "proprietary"
    if gpu and gpu.kernel_modules.flavour != "either":
        return "open" if gpu.kernel_modules.flavour == "open-required" else "proprietary"
    if driver is not None and gpu and branch:
        return drivers.choose_kernel_modules(gpu, str(branch))
    return ""


def _explain_no_peer_memory(host: HostSpec, facts: Facts) -> str:
    """Return why the host's kernels have no peer memory, now and after apply; empty if they have it, or will."""
    state = facts.get(GPUDIRECT)
    if getattr(host.capabilities.get("rdma"), "own_stack", "") == "doca-ofed":
        return ""
    without = [kernel.release for kernel in state.targets() if not kernel.symvers and kernel.core_exports != "yes"]
    return f"no ib_core with peer memory, which is OFED's, for kernel {', '.join(without)}" if without else ""


def no_dmabuf(base: Ground) -> tuple[str, str]:
    """Return why dma-buf cannot work on this basis, and the fix if there is one; both empty if it can."""
    needs = catalogue.get_method("dmabuf")
    if base.gpu and base.gpu.kernel_modules.flavour == "proprietary-required":
        return f"{base.gpu.key} ({base.gpu.arch}) has no open kernel modules, which dma-buf needs", ""
    if base.branch and base.branch < int(needs.first_branch):
        why = (
            f"driver {base.branch} is older than {needs.first_branch}, the first with dma-buf (CUDA {needs.first_cuda})"
        )
        return why, f"a driver of branch {needs.first_branch} or newer"
    if base.flavour == "proprietary":
        return "dma-buf needs open kernel modules, and the host has, or gets, proprietary ones", OPEN
    first = catalogue.parse_kernel_order(needs.first_kernel)
    if old := [kernel for kernel in base.kernels if catalogue.parse_kernel_order(kernel) < first]:
        return (
            f"kernel {', '.join(old)} is older than {needs.first_kernel}, the first with dma-buf for RDMA",
            "a newer kernel",
        )
    return (f"{base.dmabuf}, which dma-buf needs", "another kernel") if base.dmabuf else ("", "")


def no_peer(base: Ground, name: Literal["nvidia_peermem", "nv_peer_mem"]) -> tuple[str, str]:
    """Return the same for the modules."""
    needs = catalogue.get_method(name)
    if needs.first_branch and base.branch and base.branch < int(needs.first_branch):
        why = f"driver {base.branch} has no nvidia_peermem: {needs.first_branch} is the first"
        return why, f"a driver of branch {needs.first_branch} or newer"
    if name == "nv_peer_mem" and base.flavour == "open":
        why = "it is of the time before open kernel modules, which the host has, or gets"
        return why, "method nvidia_peermem, which took its place"
    if name == "nvidia_peermem" and base.precompiled:
        why = "precompiled modules were built without OFED, so their nvidia_peermem never loads (Invalid argument)"
        return why, "nvidia_driver: {build: dkms}"
    return (base.peer, OFED) if base.peer else ("", "")


def decide(base: Ground, block: GpudirectRdma) -> Decision:
    """Return the requested method, if it is possible; `auto` is dma-buf if that works, else nvidia_peermem."""
    if base.fabric == "soft":
        why = "software RDMA devices copy by the CPU and reach no GPU memory"
        return Decision(problem=why, fix="gpudirect_rdma: false, or a rdma.fabric of real devices")
    if base.gpu and base.excluded:
        why = f"{base.gpu.key} has no GPUDirect RDMA: {base.excluded.text}"
        return Decision(problem=why, fix="; ".join(filter(None, ("take gpudirect_rdma out", base.excluded.way))))
    why, way = no_dmabuf(base)
    if base.fabric == "efa" and (why or block.method in ("nvidia_peermem", "nv_peer_mem")):
        message = (
            "EFA has no part in peer memory: its driver reaches GPU memory by dma-buf, or by NVIDIA's interface itself"
        )
        return Decision(problem=f"{message}; {why}" if why else message, fix=_join_with_or(way, EFA))
    if block.method in ("nvidia_peermem", "nv_peer_mem"):
        other, out = no_peer(base, block.method)
        return Decision(
            method=block.method,
            reason="the spec asks for it",
            problem=other,
            fix=_join_with_or(out, "" if why or "method" in out else "method dmabuf") if other else "",
        )
    other, out = no_peer(base, "nvidia_peermem")
    if block.method == "dmabuf":
        module = "method nvidia_peermem" if base.stack == "doca-ofed" else f"{OFED}, and method nvidia_peermem"
        possible = not other or other == base.peer
        fix = _join_with_or(way, module if possible else "") or out
        return Decision(method="dmabuf", reason="the spec asks for it", problem=why, fix=fix if why else "")
    if not why and not base.flavour:
        return Decision(reason="the host's kernel modules decide")
    if not why:
        return Decision(method="dmabuf", reason=f"dma-buf is supported, which NVIDIA recommends: {base.describe()}")
    if other:
        return Decision(problem=f"{why}; and {other}", fix=_join_with_or(way, out))
    return Decision(method="nvidia_peermem", reason=why)


def _join_with_or(*ways: str) -> str:
    return "; or ".join(way for way in ways if way)
