"""Rules for hosts of virtual machines that hold on any host, and what they ask of the kernel."""

import re
from collections.abc import Iterable

from gpuprov.capabilities.passthrough.fragment import Passthrough, is_address
from gpuprov.catalog import fabric, gpus, pcie
from gpuprov.catalog.gpus import Gpu
from gpuprov.core.safe_parse import is_whole
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import HostSpec
from gpuprov.spec.problem import Problem, report_under

problem = report_under("passthrough")
ADDRESS = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[01][0-9a-fA-F]\.[0-7]")
# Blocks that a host without a GPU of its own cannot have.
NEED_A_GPU = (
    *("nvidia_driver", "persistence", "fabric_manager", "gpudirect_rdma", "gds", "container_toolkit", "mig"),
    *("gpu_settings", "mps", "slurm", "dcgm", "cgpu", "acceptance"),
)
# Of these, what runs the NVSwitches where virtual machines share them.
OF_SWITCHES = ("nvidia_driver", "persistence", "fabric_manager")


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


def lends_all(host: HostSpec, block: Passthrough) -> bool:
    """Return whether no GPU stays with the host, as far as the spec says."""
    model, count = find_model(host), len(list_addresses(block))
    by_model = model is not None and any(gpus.find_gpu(name) == model for name in block.gpus)
    return block.gpus == "all" or by_model or (count > 0 and host.gpu is not None and count == host.gpu.count)


def list_addresses(block: Passthrough) -> set[str]:
    return {text.lower() for text in block.gpus if is_address(text)}


def rules(host: HostSpec, block: Passthrough) -> Iterable[Problem]:
    if not block.gpus:
        return
    yield from _check_selectors(host, block)
    yield from _check_driver(host, block)
    yield from _check_isolation(host)
    yield from _check_switches(host, block)
    shared = OF_SWITCHES if _find_mode(host) == "shared-nvswitch" else ()
    for name in NEED_A_GPU if lends_all(host, block) else ():
        if name in host.capabilities and name not in shared:
            fix = f"{name}: false for these hosts, or lend some of the GPUs only"
            yield problem("gpus", f"are all GPUs of the host, and {name} needs one that stays", fix)
    if "vgpu_guest" in host.capabilities:
        yield problem("", "contradicts vgpu_guest, which is for a guest", "vgpu_guest: false")


def _check_selectors(host: HostSpec, block: Passthrough) -> Iterable[Problem]:
    named = () if block.gpus == "all" else block.gpus
    for index, text in enumerate(named):
        if not (ADDRESS.fullmatch(text) if is_address(text) else gpus.find_gpu(text)):
            what, fix = _explain_selector(text)
            yield problem(("gpus", index), f'is "{text}", which {what}', fix)
        if text in named[:index]:
            yield problem(("gpus", index), f"names {text} a second time", "once is enough")
    count = len(list_addresses(block))
    if host.gpu and host.gpu.count and count > host.gpu.count:
        yield problem("gpus", f"names {count} GPUs, and gpu.count is {host.gpu.count}", "correct one of them")


def _explain_selector(text: str) -> tuple[str, str]:
    """Explain an entry of gpus that is neither a PCI address nor a model, with what to write."""
    if ADDRESS.fullmatch(f"0000:{text}"):
        return "is a PCI address without its domain", f'write "0000:{text}", or as lspci -D prints it'
    if text.upper().startswith(("GPU-", "MIG-")):
        return "is a UUID: only the driver knows it", 'write the address, as lspci -D prints it: "0000:3b:00.0"'
    if is_whole(text):
        return "is an index: another GPU may have it after a boot", 'write the address: "0000:3b:00.0", or a model'
    if is_address(text):
        return "is not a PCI address", 'as lspci -D prints it: "0000:3b:00.0"'
    return gpus.explain_unknown(text)


def _check_driver(host: HostSpec, block: Passthrough) -> Iterable[Problem]:
    model = find_model(host)
    if model and model.key.startswith(pcie.ARM_GPUS) != (block.driver != "vfio-pci"):
        # Memory of the GPU that is coherent with the CPU's:
        # https://github.com/torvalds/linux/tree/master/drivers/vfio/pci/nvgrace-gpu
        right = "vfio-pci" if block.driver != "vfio-pci" else "nvgrace-gpu-vfio-pci"
        yield problem("driver", f"is {block.driver}, and that of {model.key} is {right}", f"driver: {right}")


def _check_isolation(host: HostSpec) -> Iterable[Problem]:
    block = host.capabilities.get("pcie")
    if getattr(block, "acs", "keep") == "disabled":
        message = "contradicts pcie.acs: without ACS, virtual machines are not kept apart, and groups grow"
        yield problem("", message, "pcie: {acs: keep}")
    if getattr(block, "iommu", "keep") == "disabled":
        yield problem("", "contradicts pcie.iommu, which is disabled", "pcie: {iommu: keep}")


def _find_mode(host: HostSpec) -> str:
    return str(getattr(host.capabilities.get("fabric_manager"), "fabric_mode", ""))


def _check_switches(host: HostSpec, block: Passthrough) -> Iterable[Problem]:
    """Yield problems of boards with NVSwitches: full passthrough or shared NVSwitches, no third way."""
    # https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide (virtualization models)
    mode = _find_mode(host)
    if block.nvswitches and (block.gpus != "all" or mode):
        message = "goes with gpus: all, to one virtual machine whose own Fabric Manager runs them"
        yield problem("nvswitches", message, "gpus: all and fabric_manager: false; or nvswitches: false")
    elif mode not in ("", "shared-nvswitch"):
        message = f"contradicts fabric_manager.fabric_mode: {mode}"
        yield problem(
            "", message, "fabric_manager: {fabric_mode: shared-nvswitch}; or nvswitches: true, with gpus: all"
        )
    elif not (block.nvswitches or mode) and _is_board(host):
        message = "lends GPUs that NVSwitches join: without them CUDA ends with error 802 in the virtual machine"
        fix = "nvswitches: true, with gpus: all; or fabric_manager: {fabric_mode: shared-nvswitch}"
        yield problem("", message, fix, warning=True)


def _is_board(host: HostSpec) -> bool:
    model = find_model(host)
    joined = model is not None and model.fabric_manager.needed == "nvswitch-boards"
    return joined and host.gpu is not None and (host.gpu.count or fabric.BOARD) >= fabric.BOARD
