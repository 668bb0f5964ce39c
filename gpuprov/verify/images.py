"""Checks of an image: which its files decide, and which only the first boot can."""

from gpuprov.capabilities.base import Moment

# What is said of a check that needs the machine; it has neither passed nor failed.
AT_FIRST_BOOT = "at first boot"
# Checks that keep apply from a host, and that judge its hardware, its running kernel or its users.
STOPS = frozenset(
    {
        *("kernel.sysctl_known", "kernel.hugepage_sizes", "kernel.governor_offered"),
        *("rdma.roce_ways", "rdma.erdma_function", "rdma.erdma_users", "rdma.erdma_free", "rdma.efa_function"),
        *("rdma.nccl_named", "rdma.interfaces", "rdma.port"),
        *("nvidia_driver.clients", "nvidia_driver.secure_boot", "nvidia_driver.machine_memory"),
        *("nvidia_driver.machine_vgpu", "nvidia_driver.machine_hypervisor", "nvidia_driver.machine_reset"),
        *("vgpu_guest.gpu", "vgpu_guest.branch"),
        *("fabric_manager.hardware", "fabric_manager.subnet_modules", "fabric_manager.imex_hardware"),
        *("pcie.hardware", "topology.visible", "mig.fits", "mig.clients", "mig.resettable"),
        *("gpu_settings.fits", "gpu_settings.clients", "mps.gpus"),
        *("nvidia_absent.clients", "scratch.disks"),
        *("passthrough.hardware", "passthrough.clients", "passthrough.group"),
    }
)
# Checks of the next boot that read devices, or the boot before.
BOOT = frozenset({"host.first_boot", "gpu_settings.ecc_boot", "pcie.boot", "mig.manager", "nvidia_driver.enrolled"})
# Checks of now that packages and files alone decide.
FILES = frozenset(
    {
        *("host.package_sources", "kernel.blacklist", "kernel.module_options", "nouveau.configured"),
        *("rdma.packages", "rdma.ofed_release", "nvidia_driver.packages", "nvidia_driver.flavour"),
        *("nvidia_driver.source", "nvidia_driver.repository", "nvidia_driver.runfile", "cuda_toolkit.packages"),
        *("container_toolkit.packages", "container_toolkit.registered", "container_toolkit.mode", "dcgm.version"),
        *("nvidia_absent.packages", "nvidia_absent.runfile", "nvidia_absent.libraries"),
    }
)
# Checks, in every capability, whose differences the first boot removes.
COMPLETED = ("files", "enabled")


def waits(check: str, moment: Moment, *, stops: bool) -> bool:
    """Return whether a check needs the machine that starts the image."""
    if stops:
        return check in STOPS
    return check in BOOT if moment == "next-boot" else check not in FILES


def is_completed(check: str) -> bool:
    """Return whether the first boot brings about what this check compares."""
    return check.partition(".")[2] in COMPLETED
