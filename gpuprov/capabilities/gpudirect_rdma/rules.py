"""Rules for GPUDirect RDMA that hold on any host."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gpuprov.capabilities.gpudirect_rdma.decision import OFED, decide, ground
from gpuprov.capabilities.gpudirect_rdma.fragment import OVERRIDES, GpudirectRdma, parameters
from gpuprov.capabilities.gpudirect_rdma.platforms import judge_bare_metal, judge_platform
from gpuprov.catalog.rdma import gpudirect as catalogue
from gpuprov.spec.kernel import Kernel, Scalar
from gpuprov.spec.model import HostSpec
from gpuprov.spec.problem import Problem, report_under

HERE = "gpudirect_rdma"
problem = report_under(HERE)
OVERRIDE = catalogue.OVERRIDE


def rules(host: HostSpec, block: GpudirectRdma) -> Iterable[Problem]:
    base = ground(host)
    decision = decide(base, block)
    path = (HERE, "method") if block.method != "auto" else (HERE,)
    if decision.problem:
        name = f"{HERE}.method {block.method}" if block.method != "auto" else HERE
        yield Problem(path=path, message=f"{name}: {decision.problem}", fix=decision.fix)
    elif "rdma" not in host.capabilities:
        fix = "add rdma: {fabric: ...}, or gpudirect_rdma: false"
        message = "without rdma: nothing says which devices are to reach the GPUs, or whose stack they have"
        yield problem("", message, fix, warning=True)
    yield from _check_stack(block, base.fabric, base.stack, decision.method, decision.reason)
    yield from _check_prebuilt_modules(host, decision.method)
    yield from _check_values(host, block, base.branch, decision.method)
    yield from judge_platform(host, block)
    yield from judge_bare_metal(host)
    yield from _check_cuda(host, block, decision.method)
    if block.gdrcopy.tests and not block.gdrcopy.install:
        message = "without install: the test programs need the library and the module"
        yield problem("gdrcopy.tests", message, "install: true, or tests: false")


def _check_stack(block: GpudirectRdma, fabric: str, stack: str, method: str, reason: str) -> Iterable[Problem]:
    """Yield a problem of peer memory without OFED."""
    # https://github.com/NVIDIA/cloud-native-docs/blob/main/gpu-operator/gpu-operator-rdma.rst
    if block.method == "auto" and method == "nvidia_peermem":
        message = f"gpudirect_rdma.method auto is nvidia_peermem here: {reason}"
        yield Problem(path=(HERE,), message=message, fix="method: nvidia_peermem ends this warning", severity="warning")
    if method in ("nvidia_peermem", "nv_peer_mem") and stack and stack != "doca-ofed":
        what = (
            "OFED's headers when Alibaba's driver is built"
            if fabric == "erdma"
            else "DOCA-OFED, or a kernel that has peer memory"
        )
        message = f": {method} needs {what}, and rdma.stack is {stack}"
        yield problem("", message, f"{OFED}, or method dmabuf", warning=True)
    if method == "nv_peer_mem":
        needs = catalogue.get_method("nv_peer_mem")
        since = f"CUDA {needs.deprecated_since_cuda} (driver {needs.deprecated_since_branch})"
        message = f"nv_peer_mem is deprecated since {since}"
        yield problem("method", message, "method: nvidia_peermem takes its place", warning=True)


def _check_prebuilt_modules(host: HostSpec, method: str) -> Iterable[Problem]:
    """Yield a problem for modules that are rebuilt after OFED, as they are not packed for other hosts."""
    builder = getattr(host.capabilities.get("nvidia_driver"), "build_host", "")
    if method == "nvidia_peermem" and builder:
        fix = f"{OFED} for {builder}, too, from its first apply on; or method dmabuf"
        message = f": nvidia_peermem comes from {builder}, and works only if OFED is there before the driver is built"
        yield problem("", message, fix, warning=True)


def _check_values(host: HostSpec, block: GpudirectRdma, branch: int, method: str) -> Iterable[Problem]:
    for name, value in parameters(block).items():
        if method in ("dmabuf", "nv_peer_mem"):
            message = f"is {value}, and method {method} has no such parameter"
            yield problem((name,), message, "method: nvidia_peermem, or leave it out")
        elif branch and branch < catalogue.find_first_branch(name):
            message = f"is {value}, and nvidia_peermem of driver {branch} has no such parameter"
            yield problem((name,), message, f"a driver from {catalogue.find_first_branch(name)} on, or leave it out")
    first = catalogue.find_first_branch(OVERRIDE)
    if OVERRIDE in getattr(host.capabilities.get("nvidia_driver"), "module_parameters", {}):
        message = f"nvidia_driver.module_parameters has {OVERRIDE}, which is gpudirect_rdma.topology_check's to say"
        fix = "topology_check: allow (1) or deny (2), and take it out of module_parameters"
        yield Problem(path=("nvidia_driver", "module_parameters", OVERRIDE), message=message, fix=fix)
    if block.topology_check != "driver" and branch and branch < first:
        message = f"is {block.topology_check}, and driver {branch} has no {OVERRIDE}"
        yield problem("topology_check", message, f"a driver from {first} on, or leave it out")
    gone = catalogue.find_gone_branch(OVERRIDE)
    if block.topology_check != "driver" and gone and branch >= gone:
        message = f"is {block.topology_check}, and drivers from {gone} on have no {OVERRIDE} any more"
        yield problem("topology_check", message, f"a driver before {gone}, or leave it out")


def _check_cuda(host: HostSpec, block: GpudirectRdma, method: str) -> Iterable[Problem]:
    """Yield a problem of programs built by an older CUDA, which do not use dma-buf."""
    toolkit: Any = host.capabilities.get("cuda_toolkit")
    first = catalogue.get_method("dmabuf").first_cuda
    old = [
        version
        for version in getattr(toolkit, "versions", ())
        if catalogue.parse_kernel_order(version) < catalogue.parse_kernel_order(first)
    ]
    if method == "dmabuf" and old:
        fix = "method: nvidia_peermem for programs of that CUDA, or a newer toolkit"
        message = f": dma-buf is known to CUDA {first} and newer, and cuda_toolkit.versions has {', '.join(old)}"
        yield problem("", message, fix, warning=True)


def contribute(_host: HostSpec, block: GpudirectRdma) -> Kernel | None:
    """Return the options of the modules. The other peer module is not blacklisted: that only blocks modules loaded by
    an alias, and it has none."""
    # Nothing is added to modules-load: early in the boot the module would hold the ib_core that openibd is to replace.
    # A unit after openibd loads it.
    options: dict[str, dict[str, Scalar]] = {}
    if values := parameters(block):
        options |= {name: dict(values) for name in catalogue.get_method("nvidia_peermem").modules}
    if value := OVERRIDES[block.topology_check]:
        options |= {name: {OVERRIDE: value} for name in catalogue.DRIVER_MODULES}
    return Kernel(module_options=options) if options else None
