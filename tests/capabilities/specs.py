"""For each capability with resources, a spec that asks for as many of them as one spec can."""

from __future__ import annotations

from typing import Any

from gpuprov.capabilities import BY_NAME
from gpuprov.capabilities.dcgm.fragment import Dcgm
from gpuprov.capabilities.fabric_manager.fragment import FabricManager, Imex
from gpuprov.capabilities.gpudirect_rdma.fragment import GpudirectRdma
from gpuprov.capabilities.kubernetes.fragment import Kubernetes
from gpuprov.capabilities.mps.fragment import Mps
from gpuprov.capabilities.persistence import Persistence
from gpuprov.spec.build import convert
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import Fragment


def block(name: str, values: dict[str, Any]) -> Fragment:
    fragment: Fragment | None
    fragment, findings = convert(values, BY_NAME[name].fragment)
    assert fragment is not None, findings
    return fragment


SPECS: dict[str, Fragment] = {
    "persistence": Persistence(mode="legacy"),
    "kernel": Kernel(
        blacklist=("nouveau",),
        sysctl={"vm.swappiness": 1},
        limits={"memlock": "unlimited"},
        modules_load=("ib_umad",),
        cpu_governor="performance",
    ),
    "mps": Mps(profile=True, units={"triton.service": "host"}),
    "dcgm": Dcgm(listen="0.0.0.0:5555", exporter=True),
    "fabric_manager": FabricManager(imex=Imex(nodes=("192.0.2.1", "192.0.2.2"))),
    "gpudirect_rdma": GpudirectRdma(method="nvidia_peermem"),
    "rdma": block("rdma", {"fabric": "roce", "roce": {"tos": 106}}),
    "kubernetes": Kubernetes(),
    "pcie": block("pcie", {"acs": "disabled", "affinity": "local"}),
    "gpu_settings": block("gpu_settings", {"power_limit": 400}),
    "hpc": block("hpc", {"mpi": "hpcx"}),
    "gds": block("gds", {"toolkit": "12.8", "compat_mode": "deny"}),
    "cgpu": BY_NAME["cgpu"].fragment(),
    "passthrough": BY_NAME["passthrough"].fragment(),
    "scratch": block("scratch", {"required_by": ["containerd"]}),
    "mig": block("mig", {"layout": [{"gpus": "all", "instances": {"1g.10gb": 7}}]}),
    "readings": BY_NAME["readings"].fragment(),
    "slurm": block("slurm", {"health_check": True, "containers": {"enroot": True, "pyxis": True}}),
    "cuda_toolkit": BY_NAME["cuda_toolkit"].fragment(),
    "vgpu_guest": BY_NAME["vgpu_guest"].fragment(),
    "nvidia_absent": BY_NAME["nvidia_absent"].fragment(),
    "container_toolkit": BY_NAME["container_toolkit"].fragment(),
}
