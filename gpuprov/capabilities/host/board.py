"""Rules for the named GPUs that hold on any host."""

from collections.abc import Iterable

from gpuprov.catalog import fabric, gpus
from gpuprov.spec.model import GpuSpec, HostSpec
from gpuprov.spec.problem import Problem


def problems(host: HostSpec, gpu: GpuSpec) -> Iterable[Problem]:
    """Yield an unknown model, more GPUs than a board has, and NVSwitches without Fabric Manager."""
    known, count = gpus.find_gpu(gpu.model), gpu.count or 0
    if known is None:
        what, fix = gpus.explain_unknown(gpu.model)
        yield Problem(path=("gpu", "model"), message=f'gpu.model "{gpu.model}" {what}', fix=fix)
        return
    most = fabric.count_most(known)
    if most and count > most:
        message = f"gpu.count is {count}, and no host with more than {most} {known.key} is known"
        yield Problem(path=("gpu", "count"), message=message, fix=f"allowed: 1 to {most}", severity="warning")
    driven = "nvidia_driver" in host.capabilities and "fabric_manager" not in host.capabilities
    if driven and known.fabric_manager.needed == "nvswitch-boards" and count >= fabric.BOARD:
        message = f"{count} x {known.key} are joined by NVSwitches, and the spec has no fabric_manager"
        fix = "add fabric_manager: {}; without Fabric Manager CUDA ends with error 802"
        yield Problem(path=("gpu",), message=message, fix=fix, severity="warning")
