"""The registry: every capability in apply order, and the house's own block. An explicit list; nothing is discovered."""

from gpuprov.capabilities import (
    acceptance,
    cgpu,
    container_toolkit,
    cuda_toolkit,
    dcgm,
    fabric_manager,
    gds,
    gpu_settings,
    gpudirect_rdma,
    health,
    host,
    hpc,
    kernel,
    kubernetes,
    mig,
    mps,
    nouveau,
    nvidia_absent,
    nvidia_driver,
    passthrough,
    pcie,
    persistence,
    rdma,
    readings,
    scratch,
    slurm,
    topology,
    vgpu_guest,
)
from gpuprov.capabilities.base import Capability
from gpuprov.capabilities.generated import with_checks
from gpuprov.spec.model import Fragment, HostSpec

CAPABILITIES: tuple[Capability, ...] = with_checks(
    (
        kernel.CAPABILITY,
        nouveau.CAPABILITY,
        rdma.CAPABILITY,
        nvidia_absent.CAPABILITY,
        passthrough.CAPABILITY,
        nvidia_driver.CAPABILITY,
        persistence.CAPABILITY,
        cuda_toolkit.CAPABILITY,
        vgpu_guest.CAPABILITY,
        fabric_manager.CAPABILITY,
        gpudirect_rdma.CAPABILITY,
        gds.CAPABILITY,
        hpc.CAPABILITY,
        scratch.CAPABILITY,
        pcie.CAPABILITY,
        topology.CAPABILITY,
        container_toolkit.CAPABILITY,
        mig.CAPABILITY,
        gpu_settings.CAPABILITY,
        mps.CAPABILITY,
        kubernetes.CAPABILITY,
        slurm.CAPABILITY,
        dcgm.CAPABILITY,
        cgpu.CAPABILITY,
        acceptance.CAPABILITY,
        health.CAPABILITY,
        readings.CAPABILITY,
    )
)
HOUSE: Capability = host.capability(CAPABILITIES)
BY_NAME: dict[str, Capability] = {capability.name: capability for capability in (HOUSE, *CAPABILITIES)}


def house_fragment(spec: HostSpec) -> Fragment:
    """Return the house's fragment of a spec, so that its checks run as any capability's do."""
    return host.House(gpu=spec.gpu, reboot=spec.reboot, on_failure=spec.on_failure, recipe=spec.recipe)
