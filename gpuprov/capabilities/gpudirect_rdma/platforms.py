"""Needs of a platform for GPUDirect RDMA: by GPU and fabric, and of PCIe on bare metal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from gpuprov.capabilities.base import Context
from gpuprov.capabilities.driver import find_requested_version
from gpuprov.capabilities.gpudirect_rdma.fragment import GpudirectRdma
from gpuprov.catalog import drivers, gpus, pcie
from gpuprov.catalog.rdma import gpudirect as catalogue
from gpuprov.catalog.recipes import find_recipe
from gpuprov.facts.probes.host import system, virtualization
from gpuprov.facts.probes.host.pcie import PCIE, Pcie
from gpuprov.host_code.at_boot.pcie import UNREADABLE, list_differences
from gpuprov.host_code.at_boot.program import Refused
from gpuprov.spec.model import HostSpec
from gpuprov.spec.problem import Problem, report_under

HERE = "gpudirect_rdma"
problem = report_under(HERE)
PROBES = (PCIE, virtualization.MACHINE, system.CONTAINER)
# Prefixes of the form factors of GPUs that come with a server's board.
BOARDS = ("SXM", "superchip")
# Fabrics of adapters on bare metal; AWS's and Alibaba's come with their hosts, whose PCIe settings cannot be changed.
ON_BOARD = ("infiniband", "roce", "iwarp")


def find_platform(host: HostSpec) -> catalogue.Platform | None:
    """Return the catalogue's entry for the host's GPUs with its fabric."""
    gpu = gpus.find_gpu(host.gpu.model) if host.gpu else None
    return catalogue.find_platform(gpu.key, _describe_fabric(host)) if gpu else None


def find_old_driver(platform: catalogue.Platform, version: str) -> str:
    """Return why a driver does not work on the platform; empty if it does, or a branch alone does not decide."""
    requested = drivers.Version.parse(version)
    if platform.gone_branch and requested >= drivers.Version.parse(platform.gone_branch):
        return f"drivers from {platform.gone_branch} on have no {catalogue.OVERRIDE} any more"
    oldest = drivers.Version.parse(platform.first_driver) if platform.first_driver else None
    if oldest and requested < oldest and not (requested.is_branch and requested.parts[0] == oldest.parts[0]):
        return f"the oldest driver that does is {platform.first_driver}"
    return ""


def judge_platform(host: HostSpec, block: GpudirectRdma) -> Iterable[Problem]:
    """Yield rules for GPUs of some models with a fabric, from recipes that were tried on such machines."""
    platform = find_platform(host)
    if platform is None:
        return
    what = f"{host.gpu.model if host.gpu else ''} with {_describe_fabric(host)}"
    requested = find_requested_version(host)
    wrong = find_old_driver(platform, requested) if requested else ""
    if wrong and platform.required:
        message = f"nvidia_driver.version is {requested}, and for {what} {wrong}: {platform.text}"
        fix = f"a driver from {platform.first_driver} on and before {platform.gone_branch}"
        yield Problem(path=("nvidia_driver", "version"), message=message, fix=fix)
    elif not wrong and block.topology_check == "driver":
        message = f"is driver, and for {what}: {platform.text}"
        fix = f"topology_check: {platform.topology_check}{'' if platform.required else ', on such machines'}"
        yield problem("topology_check", message, fix, warning=not platform.required)
    elif platform.required and block.topology_check not in ("driver", platform.topology_check):
        message = f"is {block.topology_check}, and for {what}: {platform.text}"
        yield problem("topology_check", message, f"topology_check: {platform.topology_check}")


def judge_bare_metal(host: HostSpec) -> Iterable[Problem]:
    """Yield a warning for GPUs on boards of servers (SXM, Grace), as bare metal cannot be detected offline."""
    # NCCL that is slow, hangs or fails for this reason: https://github.com/NVIDIA/nccl/issues/1737, 2079, 606, 489 and
    # 257.
    gpu = gpus.find_gpu(host.gpu.model) if host.gpu else None
    recipe = find_recipe(host.recipe)  # a cloud's instances with such adapters are virtual machines
    virtual = bool(recipe and recipe.instances) or any(name in host.capabilities for name in ("vgpu_guest", "cgpu"))
    if (
        gpu
        and gpu.form_factor.startswith(BOARDS)
        and "pcie" not in host.capabilities
        and _describe_fabric(host) in ON_BOARD
        and not virtual
    ):
        acs = "rdma_topo" if gpu.key.startswith(pcie.ARM_GPUS) else "disabled"
        message = (
            ": on bare metal, PCIe ACS and an IOMMU that translates are in its way, and no pcie block says "
            "what they are to be"
        )
        fix = (
            f"pcie: {{acs: {acs}, iommu: passthrough}}; in a virtual machine they are its host's: this warning "
            "is not for it"
        )
        yield problem("", message, fix, warning=True)


def describe_path(ctx: Context[GpudirectRdma]) -> str:
    """Describe ACS and IOMMU between GPUs and HCAs, if they are in the way and the spec does not set them. By the same
    rules as the checks of `pcie`."""
    if (
        ctx.facts.get(system.CONTAINER)
        or ctx.facts.get(virtualization.MACHINE).kind
        or _describe_fabric(ctx.host) not in ON_BOARD
    ):
        return ""
    block: Any = ctx.host.capabilities.get("pcie")
    state = ctx.facts.get(PCIE)
    obstacles = [*_describe_access(state)] if getattr(block, "acs", "keep") == "keep" else []
    obstacles += _describe_translation(state) if getattr(block, "iommu", "keep") == "keep" else []
    return (
        f"; noted: {'; '.join(obstacles)}, in the way of GPUDirect RDMA: see pcie.acs and pcie.iommu"
        if obstacles
        else ""
    )


def _describe_access(state: Pcie) -> Iterator[str]:
    computed = [name for other in state.others if (name := pcie.find_acs_kind(other))]
    if computed:
        if state.topo_wrong:
            yield f"rdma_topo check: {state.topo_wrong[0]}"
        return
    try:
        wrong = list(list_differences(state.path(), {"acs": "disabled"}))
    except Refused:
        return
    if on := [difference.address for difference in wrong if difference.actual != UNREADABLE]:
        yield f"ACS is on in {_join_names(on)}"


def _describe_translation(state: Pcie) -> list[str]:
    translating = {*pcie.DOMAINS["translated"], *pcie.DOMAINS["strict"]}
    functions = [function for kind in ("gpu", "hca") for function in state.of(kind) if function.domain in translating]
    return (
        [f"the IOMMU translates for {_join_names(function.address for function in functions)} ({functions[0].domain})"]
        if functions
        else []
    )


def _join_names(addresses: Iterable[str]) -> str:
    named = [*addresses]
    return " ".join(named[:4]) + (f" and {len(named) - 4} more" if len(named) > 4 else "")


def _describe_fabric(host: HostSpec) -> str:
    return str(getattr(host.capabilities.get("rdma"), "fabric", ""))
