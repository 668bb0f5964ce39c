"""`nvidia_absent`: no software of NVIDIA's for GPUs on the host."""

from gpuprov.capabilities.base import Capability
from gpuprov.capabilities.nvidia_absent import now
from gpuprov.capabilities.nvidia_absent.desired import DESIRED, RESOURCES
from gpuprov.capabilities.nvidia_absent.fragment import NvidiaAbsent
from gpuprov.capabilities.nvidia_absent.tasks import TASKS
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import HostSpec

HERE = "nvidia_absent"
_BROUGHT = (f"{HERE}.packages", f"{HERE}.runfile")


def contribute(_host: HostSpec, _block: NvidiaAbsent) -> Kernel:
    """Contribute nothing, so that `kernel` removes what blocks before had it set: nouveau's blacklist, and options of
    NVIDIA's modules, in every initramfs, too."""
    return Kernel()


CAPABILITY = Capability(
    name=HERE,
    summary="NVIDIA removed: driver, CUDA, Fabric Manager, DCGM, container toolkit, and all that gpuprov set up for "
    "them",
    fragment=NvidiaAbsent,
    checks=now.CHECKS,
    contribute=contribute,
    tasks=TASKS,
    desired=DESIRED,
    resources=RESOURCES,
    packages=True,
    sets_up=False,
    prunes=True,
    driverless=True,
    presupposes={
        **dict.fromkeys(("modules", "libraries", "units"), _BROUGHT),
        "initramfs": (*_BROUGHT, f"{HERE}.modules"),
    },
    shown_by="tests/e2e/test_nvidia_absent.py",
)
