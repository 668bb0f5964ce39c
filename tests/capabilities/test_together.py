"""Blocks of one host that have to do with the same disks, engines and GPUs: none refuses another, and they come in
order."""

from __future__ import annotations

from gpuprov.fleet.specs import judge
from gpuprov.spec.model import RawHost

SPEC: dict[str, object] = {
    "gpu": {"model": "L40S", "count": 4},
    "nvidia_driver": {"version": "580", "kernel_modules": "open"},
    "persistence": {},
    "passthrough": {"gpus": ["0000:3b:00.0"]},
    "scratch": {"required_by": ["containerd", "kubelet", "slurmd"]},
    "container_toolkit": {"runtimes": ["containerd"]},
    "rdma": {"fabric": "infiniband", "stack": "doca-ofed", "count": 2, "opensm": {"elsewhere": True}},
    "gds": {},
    "hpc": {},
    "slurm": {"containers": {"enroot": True, "pyxis": True, "folder": "/scratch/enroot"}},
    "kubernetes": {"label_node": False, "device_plugin": {"mig_strategy": "none"}},
}


def test_storage_mpi_slurm_and_kubernetes_are_one_spec_beside_a_lent_gpu() -> None:
    ((_, spec),) = judge([RawHost(name="a", values=SPEC)]).pairs  # raises with every conflict
    order = list(spec.capabilities)
    assert order.index("passthrough") < order.index("nvidia_driver"), "a lent GPU is bound before a driver takes it"
    assert order.index("rdma") < order.index("gds"), "nvidia-fs is built for OFED's kernel modules"
    assert order.index("scratch") < order.index("container_toolkit"), "what an engine needs is there before it restarts"
    assert order.index("scratch") < order.index("slurm"), "enroot's folders are on it"
    assert order.index("container_toolkit") < order.index("kubernetes")
