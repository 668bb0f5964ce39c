"""What a check presupposes of the host, and which failures a boot undoes by itself: so that one cause is one finding.

A failure follows from another where it could not be otherwise as long as that one is there: without a loaded driver no GPU is in
MIG mode. What is no more than likely to have the same reason stays a finding of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

_LOADED = ("nvidia_driver.loaded",)
_PACKAGES = ("nvidia_driver.packages", "nvidia_driver.runfile")

PRESUPPOSES: Mapping[str, tuple[str, ...]] = {
    "nvidia_driver.flavour": _PACKAGES,
    "nvidia_driver.source": _PACKAGES,
    "nvidia_driver.held": _PACKAGES,
    "nvidia_driver.modules_built": (*_PACKAGES, "nvidia_driver.headers"),
    "nvidia_driver.user_space": _PACKAGES,
    "nvidia_driver.next_kernel": (
        "nvidia_driver.modules_built",
        "nvidia_driver.precompiled",
        *_PACKAGES,
        "nvidia_driver.headers",
    ),
    "nvidia_driver.signed": ("nvidia_driver.modules_built",),
    "nvidia_driver.loaded": ("host.gpu", "nouveau.running", "nvidia_driver.modules_built", *_PACKAGES),
    "nvidia_driver.module_parameters": _LOADED,
    "nvidia_driver.cuda": (*_PACKAGES, *_LOADED),
    "persistence.active": _PACKAGES,
    "persistence.enabled": _PACKAGES,
    "persistence.mode_on": ("persistence.active", *_LOADED),
    "cuda_toolkit.runs": ("cuda_toolkit.packages",),
    "cuda_toolkit.default": ("cuda_toolkit.packages",),
    "cuda_toolkit.held": ("cuda_toolkit.packages",),
    "cuda_toolkit.path": ("cuda_toolkit.packages",),
    "vgpu_guest.alive": _PACKAGES,
    "vgpu_guest.licensed": ("vgpu_guest.alive", "vgpu_guest.token_installed", "vgpu_guest.configured", *_LOADED),
    "fabric_manager.held": ("fabric_manager.version",),
    "fabric_manager.enabled": ("fabric_manager.version",),
    "fabric_manager.alive": ("fabric_manager.version", *_LOADED),
    "fabric_manager.settings": ("fabric_manager.version",),
    "fabric_manager.registered": ("fabric_manager.alive", *_LOADED),
    "fabric_manager.imex_held": ("fabric_manager.imex_version",),
    "fabric_manager.imex_enabled": ("fabric_manager.imex_version",),
    "fabric_manager.imex_alive": ("fabric_manager.imex_version", *_LOADED),
    "fabric_manager.imex_domain": ("fabric_manager.imex_alive", "fabric_manager.imex_nodes"),
    "fabric_manager.imex_channel": _LOADED,
    "gpudirect_rdma.loaded": _LOADED,
    "gpudirect_rdma.parameters": ("gpudirect_rdma.loaded",),
    "container_toolkit.held": ("container_toolkit.packages",),
    "container_toolkit.configured": ("container_toolkit.packages",),
    "container_toolkit.registered": ("container_toolkit.packages", "container_toolkit.configured"),
    "container_toolkit.mode": ("container_toolkit.packages",),
    "container_toolkit.cdi": ("container_toolkit.packages", *_LOADED),
    "container_toolkit.cdi_refresh": ("container_toolkit.packages",),
    "container_toolkit.daemon_reload": ("container_toolkit.packages",),
    "container_toolkit.daemon_reload_at_boot": ("container_toolkit.packages",),
    "mig.mode": _LOADED,
    "mig.instances": ("mig.mode", *_LOADED),
    "mig.cdi": ("mig.instances", "container_toolkit.packages", *_LOADED),
    "mig.capabilities": ("mig.instances", *_LOADED),
    "gpu_settings.ecc": _LOADED,
    "gpu_settings.power_limit": _LOADED,
    "gpu_settings.application_clocks": _LOADED,
    "gpu_settings.locked_clocks": _LOADED,
    "gpu_settings.compute_mode": _LOADED,
    "gpu_settings.confidential_computing": _LOADED,
    "gpu_settings.persistence": ("persistence.mode_on", *_LOADED),
    "mps.daemons": ("mig.instances", *_LOADED),
    "mps.limits": ("mps.daemons", *_LOADED),
    "mps.static_partitions": ("mps.daemons", *_LOADED),
    "mps.compute_mode": _LOADED,
    "mps.servers": ("mps.daemons", *_LOADED),
    "kubernetes.allocatable": ("kubernetes.kubelet", "kubernetes.runtime", "mig.instances", *_LOADED),
    "dcgm.held": ("dcgm.version",),
    "dcgm.enabled": ("dcgm.version",),
    "dcgm.alive": ("dcgm.version",),
    "dcgm.listens": ("dcgm.alive",),
    "dcgm.gpus": ("dcgm.alive", *_LOADED),
    "dcgm.switches": ("dcgm.alive", "fabric_manager.query_library", *_LOADED),
    "dcgm.exporter": ("dcgm.version", "dcgm.alive"),
    "rdma.ports": ("rdma.devices",),
    "rdma.rate": ("rdma.devices", "rdma.ports"),
    "rdma.ipoib": ("rdma.devices",),
    "rdma.umad": ("rdma.devices",),
    "rdma.ofed_held": ("rdma.ofed_release",),
    "rdma.ofed_loaded": ("rdma.ofed_release",),
    "rdma.ofed_built": ("rdma.ofed_release",),
    "rdma.ofed_openibd": ("rdma.ofed_release",),
    "rdma.roce_settings": ("rdma.devices",),
    "rdma.roce_gids": ("rdma.devices",),
    "rdma.erdma_mode": ("rdma.erdma_driver",),
    "rdma.erdma_parameters": ("rdma.erdma_driver",),
    "rdma.erdma_ports": ("rdma.erdma_driver",),
    "rdma.efa_interfaces": ("rdma.efa_driver",),
    "rdma.efa_gpudirect": ("rdma.efa_driver",),
    "acceptance.result": ("acceptance.tools", *_LOADED),
    "health.gpus": _LOADED,
    "health.xid": ("health.kernel_log",),
    "health.programs": ("health.kernel_log",),
    "health.sxid": ("health.kernel_log",),
    "health.recovery": ("health.gpus", "health.xid", *_LOADED),
    "health.ecc_mode": ("health.gpus", *_LOADED),
    "health.ecc_errors": ("health.gpus", *_LOADED),
    "health.remapped_rows": ("health.gpus", *_LOADED),
    "health.retired_pages": ("health.gpus", *_LOADED),
    "health.slowdown": ("health.gpus", *_LOADED),
    "health.temperature": ("health.gpus", *_LOADED),
    "health.power": ("health.gpus", *_LOADED),
    "health.nvlink_errors": ("health.gpus", *_LOADED),
    "health.pcie_replays": ("health.gpus", *_LOADED),
    "health.firmware": ("health.gpus", *_LOADED),
    "health.processes": ("health.gpus", *_LOADED),
    "health.pcie_errors": ("health.kernel_log",),
    "health.rdma_log": ("health.kernel_log",),
    "health.kernel": ("health.kernel_log",),
}
"""By check: others of the same host without which it cannot pass."""

AGAIN: Mapping[str, str] = {
    "mig.mode": "mig.boot",
    "mig.instances": "mig.boot",
    "mig.cdi": "mig.boot",
    "mig.capabilities": "mig.boot",
}
"""By check: the check of the next boot which proves that a unit brings about then what fails now."""


READABLE = "host.systemd"
"""Without it nobody can say what units do, and much else is not there to be read: what is not known then follows from it."""


def cause(check: str, failing: Collection[str], *, unknown: bool = False) -> str:
    """The failing check from which a failing one follows, through failing ones only; empty where it is a cause itself. `unknown`:
    what the check asks of could not be read."""
    for before in PRESUPPOSES.get(check, ()):
        if before in failing:
            return cause(before, failing) or before
    return READABLE if unknown and READABLE in failing else ""
