"""Rules for GPUDirect Storage that hold on any host, and what it asks of the kernel."""

from collections.abc import Iterable
from typing import Any

from gpuprov.capabilities.driver import find_requested_branch
from gpuprov.capabilities.gds.fragment import COMPAT_MODE, Gds, settings
from gpuprov.catalog import drivers, gpus, pcie
from gpuprov.catalog import gds as catalogue
from gpuprov.catalog.drivers.sets import MODULE_NAMES
from gpuprov.facts.probes.driver.gds import toolkit
from gpuprov.rules import resolve
from gpuprov.spec.kernel import Kernel, Scalar
from gpuprov.spec.model import HostSpec
from gpuprov.spec.problem import Problem, report_under

HERE = "gds"
problem = report_under(HERE)
OPEN = "nvidia_driver: {kernel_modules: open}"
# File systems of the kernel itself, whose drivers know nvidia-fs only as DOCA-OFED brings them.
PATCHED = ("nvme", "nvmeof", "nfs")


def rules(host: HostSpec, block: Gds) -> Iterable[Problem]:
    if settings(host, block) and not toolkit(host, block):
        message = (
            "is not set, and cuda_toolkit names no release either: settings are made in the cufile.json of one release"
        )
        yield problem("toolkit", message, 'toolkit: "12.8"; or cuda_toolkit: {versions: ["12.8"]}')
    yield from _check_driver(host, block)
    yield from _check_p2pdma(host, block) if block.path == "p2pdma" else _check_nvidia_fs(host, block)
    owned = {COMPAT_MODE: "compat_mode"} | dict.fromkeys(
        (*catalogue.gds_file().p2pdma.settings, *catalogue.gds_file().p2pdma.block_settings), "path"
    )
    for name in block.cufile:
        if name in owned:
            message = f"is {owned[name]}'s to say"
            yield problem(("cufile", name), message, f"gds.{owned[name]}, and take it out of cufile")


def _check_driver(host: HostSpec, block: Gds) -> Iterable[Problem]:
    driver: Any = host.capabilities.get("nvidia_driver")
    gpu = gpus.find_gpu(host.gpu.model) if host.gpu else None
    branch = find_requested_branch(host)
    if gpu and gpu.kernel_modules.flavour == "proprietary-required":
        message = f": {gpu.key} ({gpu.arch}) has no open kernel modules, which {block.path} needs"
        yield problem(
            "", message, "take gds out: cuFile still reads through the CPU there, with libcufile of cuda_toolkit alone"
        )
        return
    flavour = getattr(driver, "kernel_modules", "auto")
    if flavour == "auto" and driver is not None and gpu and branch:
        flavour = drivers.choose_kernel_modules(gpu, str(branch))
    if flavour == "proprietary":
        message = f": {block.path} needs open kernel modules, and nvidia_driver leads to proprietary ones"
        yield problem("", message, OPEN)


def _check_nvidia_fs(host: HostSpec, block: Gds) -> Iterable[Problem]:
    if getattr(host.capabilities.get("nvidia_driver"), "build", "dkms") == "precompiled":
        message = (
            "is nvidia-fs, whose package depends on a driver that DKMS builds, and nvidia_driver.build is precompiled"
        )
        yield problem("path", message, "nvidia_driver: {build: dkms}; or path: p2pdma, for NVMe")
    patched = [name for name in block.file_systems if name in PATCHED]
    if patched and getattr(host.capabilities.get("rdma"), "own_stack", "") != "doca-ofed":
        message = (
            f"has {', '.join(patched)}, which nvidia-fs reaches only by the drivers of DOCA-OFED, and "
            "rdma.stack is not that"
        )
        fix = "rdma: {stack: doca-ofed}, with mlnx-nvme-dkms or mlnx-nfsrdma-dkms" + "; or path: p2pdma" * (
            patched == ["nvme"]
        )
        yield problem("file_systems", message, fix, warning=True)


def _check_p2pdma(host: HostSpec, block: Gds) -> Iterable[Problem]:
    needs = catalogue.gds_file().p2pdma
    release, branch = toolkit(host, block), find_requested_branch(host)
    if release and resolve.order(release) < resolve.order(needs.first_cuda):
        yield problem(
            "path",
            f"is p2pdma, and CUDA {release} does not know it",
            f"CUDA {needs.first_cuda} or newer; or path: nvidia-fs",
        )
    if branch and branch < int(needs.first_driver):
        message = f"is p2pdma, and driver {branch} does not know it"
        yield problem("path", message, f"a driver of branch {needs.first_driver} or newer; or path: nvidia-fs")
    if host.gpu and not catalogue.has_p2pdma(host.gpu.model):
        message = f"is p2pdma, and NVIDIA does not list {host.gpu.model} for it; listed: {', '.join(needs.gpus)}"
        yield problem("path", message, "path: nvidia-fs")
    if others := [name for name in block.file_systems if name not in needs.file_systems]:
        message = f"has {', '.join(others)}, and p2pdma is for {', '.join(needs.file_systems)} alone"
        yield problem("file_systems", message, "path: nvidia-fs")


def contribute(host: HostSpec, block: Gds) -> Kernel | None:
    """Return the module that must be built for the next kernel, or the options of modules for PCI P2PDMA on x86."""
    # Nothing is added to modules_load: kernel would load it before nvidia_driver has loaded what it needs.
    if block.path == "nvidia-fs":
        return Kernel(modules_built=(catalogue.MODULE,))
    if host.gpu and host.gpu.model.startswith(pcie.ARM_GPUS):
        return None
    options: dict[str, dict[str, Scalar]] = {}
    for module, values in catalogue.gds_file().p2pdma.options.items():
        for name in MODULE_NAMES if module == "nvidia" else (module,):
            options[name] = dict(values)
    return Kernel(module_options=options)
