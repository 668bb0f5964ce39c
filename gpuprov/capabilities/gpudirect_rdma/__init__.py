"""`gpudirect_rdma`: access of RDMA devices to GPU memory: dma-buf, nvidia_peermem or nv_peer_mem, and gdrcopy."""

from __future__ import annotations

from gpuprov.capabilities.base import LOADED, Capability
from gpuprov.capabilities.gpudirect_rdma import checks, decision, gdrcopy, peer
from gpuprov.capabilities.gpudirect_rdma.desired import DESIRED, RESOURCES
from gpuprov.capabilities.gpudirect_rdma.fragment import OVERRIDES, Gdrcopy, GpudirectRdma
from gpuprov.capabilities.gpudirect_rdma.rules import OVERRIDE, contribute, rules
from gpuprov.capabilities.gpudirect_rdma.tasks import TASKS
from gpuprov.catalog.rdma import gpudirect as catalogue
from gpuprov.facts.probes import rdma
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.host import pci
from gpuprov.facts.probes.rdma import gpudirect as gdrcopy_probe
from gpuprov.facts.probes.rdma.gpudirect import GPUDIRECT
from gpuprov.spec.model import Fragment


def export(facts: Facts) -> Fragment | None:
    """Return the method in use: a peer module that gpuprov's unit loads, or dma-buf if there is an RDMA device for
    it."""
    state = facts.get(GPUDIRECT)
    unit = state.units.get(catalogue.UNIT)
    devices = [device for device in rdma.list_hcas(facts.get(rdma.DEVICES)) if not device.soft]
    ready = [kernel for kernel in state.targets() if kernel.open and kernel.uverbs == "yes"]
    words = {str(value): word for word, value in OVERRIDES.items()}
    packages = facts.get(gdrcopy_probe.PACKAGES)
    copies = Gdrcopy(install="libgdrapi" in packages or "gdrcopy-kmod" in packages, tests="gdrcopy-tests" in packages)
    override = words.get(facts.get(nvidia.PARAMETERS).get(OVERRIDE, "0"), "driver")
    common = {"topology_check": override, "gdrcopy": copies}
    if decision.excluded(decision.on_bus(facts)):
        return None
    if unit and unit.file == "enabled" and state.starts in ("nvidia_peermem", "nv_peer_mem"):
        known = ("peerdirect_support", "persistent_api_support")
        own = {key: int(state.parameters[key]) for key in known if state.parameters.get(key) in ("0", "1")}
        return GpudirectRdma(method=state.starts, **own, **common)  # type: ignore[arg-type]
    if devices and ready and len(ready) == len(state.targets()) and not state.starts:
        return GpudirectRdma(method="dmabuf", **common)  # type: ignore[arg-type]
    return None


CAPABILITY = Capability(
    name="gpudirect_rdma",
    summary="GPU memory that RDMA devices reach: dma-buf, nvidia_peermem or nv_peer_mem, and gdrcopy",
    fragment=GpudirectRdma,
    checks=(*checks.CHECKS, *peer.CHECKS, *gdrcopy.CHECKS, *checks.PREFLIGHT, *gdrcopy.PREFLIGHT),
    rules=rules,
    contribute=contribute,
    export=export,
    follows=("rdma", "nvidia_driver"),
    export_probes=(GPUDIRECT, pci.NVIDIA_FUNCTIONS, rdma.DEVICES, gdrcopy_probe.PACKAGES, nvidia.PARAMETERS),
    tasks=TASKS,
    desired=DESIRED,
    resources=RESOURCES,
    serves_jobs=True,
    packages=True,
    needs_gpu=True,
    shown_by="tests/e2e/test_gpudirect.py",
    presupposes={
        "loaded": LOADED,
        "parameters": ("gpudirect_rdma.loaded",),
    },
)
