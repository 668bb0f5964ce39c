"""Rules for hosts of virtual machines that hold on any host, and what they ask of the kernel."""

import re
from collections.abc import Iterable

from gpuprov.capabilities.passthrough.fragment import Passthrough, is_address
from gpuprov.catalog import fabric, gpus, pcie
from gpuprov.catalog.gpus import Gpu
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import HostSpec
from gpuprov.spec.problem import Problem, report_under

problem = report_under("passthrough")
ADDRESS = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[01][0-9a-fA-F]\.[0-7]")
NEED_A_GPU = (
    *("nvidia_driver", "persistence", "fabric_manager", "gpudirect_rdma", "gds", "container_toolkit", "mig"),
    *("gpu_settings", "mps", "slurm", "dcgm", "cgpu", "acceptance"),
)
"""Blocks that a host without a GPU of its own cannot have."""
OF_SWITCHES = ("nvidia_driver", "persistence", "fabric_manager")
"""Of these, what runs the NVSwitches where virtual machines share them."""


def find_model(host: HostSpec) -> Gpu | None:
    return gpus.find_gpu(host.gpu.model) if host.gpu else None


def parameters_of(host: HostSpec) -> dict[str, str]:
    """Return the kernel parameters with which the IOMMU is on, and lets this host's own devices through; none where
    pcie.iommu says how it works."""
    if getattr(host.capabilities.get("pcie"), "iommu", "keep") != "keep":
        return {}
    model = find_model(host)
    return pcie.build_parameters("passthrough", "auto", model.key if model else "")


def contribute(host: HostSpec, _block: Passthrough) -> Kernel | None:
    """Return the IOMMU's parameters."""
    parameters = parameters_of(host)
    return Kernel(command_line=parameters) if parameters else None


def rules(host: HostSpec, block: Passthrough) -> Iterable[Problem]:
    yield from _selectors(host, block)
    yield from _driver(host, block)
    yield from _isolation(host)
    yield from _switches(host, block)
    if block.gpus == "all":
        shared = _mode(host) == "shared-nvswitch"
        for name in NEED_A_GPU:
            if name in host.capabilities and not (shared and name in OF_SWITCHES):
                hint = f"{name}: false for these hosts, or name the GPUs that are lent"
                yield problem("gpus", f"is all, and {name} needs a GPU that stays with this host", hint)
    if "vgpu_guest" in host.capabilities:
        yield problem(
            "", "contradicts vgpu_guest, which is for a guest", "vgpu_guest: false on hosts of virtual machines"
        )


def _selectors(host: HostSpec, block: Passthrough) -> Iterable[Problem]:
    named = () if block.gpus == "all" else block.gpus
    for index, text in enumerate(named):
        if not (ADDRESS.fullmatch(text) if is_address(text) else gpus.find_gpu(text)):
            what, hint = "is no PCI address", 'as lspci -D prints it: "0000:3b:00.0"'
            what, hint = (what, hint) if is_address(text) else gpus.explain_unknown(text)
            yield problem(("gpus", index), f'is "{text}", which {what}', hint)
        if text in named[:index]:
            yield problem(("gpus", index), f"names {text} a second time", "once is enough")
    count = len({text.lower() for text in named if is_address(text)})
    if host.gpu and host.gpu.count and count > host.gpu.count:
        yield problem("gpus", f"names {count} GPUs, and gpu.count is {host.gpu.count}", "correct one of them")


def _driver(host: HostSpec, block: Passthrough) -> Iterable[Problem]:
    model = find_model(host)
    if model and model.key.startswith(pcie.ARM_GPUS) != (block.driver != "vfio-pci"):
        # Memory of the GPU that is coherent with the CPU's: https://github.com/torvalds/linux/tree/master/drivers/vfio/pci/nvgrace-gpu
        right = "vfio-pci" if block.driver != "vfio-pci" else "nvgrace-gpu-vfio-pci"
        yield problem("driver", f"is {block.driver}, and that of {model.key} is {right}", f"driver: {right}")


def _isolation(host: HostSpec) -> Iterable[Problem]:
    block = host.capabilities.get("pcie")
    if getattr(block, "acs", "keep") == "disabled":
        message = "contradicts pcie.acs: without ACS, virtual machines are not kept apart, and groups grow"
        yield problem("", message, "pcie: {acs: keep}")
    if getattr(block, "iommu", "keep") == "disabled":
        yield problem("", "contradicts pcie.iommu, which is disabled", "pcie: {iommu: keep}")


def _mode(host: HostSpec) -> str:
    return str(getattr(host.capabilities.get("fabric_manager"), "fabric_mode", ""))


def _switches(host: HostSpec, block: Passthrough) -> Iterable[Problem]:
    """Yield problems of boards with NVSwitches: full passthrough or shared NVSwitches, no third way.

    https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide (virtualization models)
    """
    mode = _mode(host)
    if block.nvswitches and (block.gpus != "all" or mode):
        message = "goes with gpus: all, to one virtual machine whose own Fabric Manager runs them"
        yield problem("nvswitches", message, "gpus: all and fabric_manager: false; or nvswitches: false")
    elif mode not in ("", "shared-nvswitch") and block.gpus:
        message = f"contradicts fabric_manager.fabric_mode: {mode}"
        yield problem(
            "", message, "fabric_manager: {fabric_mode: shared-nvswitch}; or nvswitches: true, with gpus: all"
        )
    elif block.gpus and not (block.nvswitches or mode) and _is_board(host):
        message = "lends GPUs that NVSwitches join: without them CUDA ends with error 802 in the virtual machine"
        hint = "nvswitches: true, with gpus: all; or fabric_manager: {fabric_mode: shared-nvswitch}"
        yield problem("", message, hint, warning=True)


def _is_board(host: HostSpec) -> bool:
    model = find_model(host)
    joined = model is not None and model.fabric_manager.needed == "nvswitch-boards"
    return joined and host.gpu is not None and (host.gpu.count or fabric.BOARD) >= fabric.BOARD
