"""`hpc`: Open MPI and UCX of the distribution, of DOCA-OFED or of HPC-X, and NCCL's SHARP plugin."""

from collections.abc import Iterator

from gpuprov.capabilities.base import Capability
from gpuprov.capabilities.hpc.checks import CHECKS
from gpuprov.capabilities.hpc.decision import find_mixed
from gpuprov.capabilities.hpc.desired import DESIRED, RESOURCES
from gpuprov.capabilities.hpc.fragment import Hpc
from gpuprov.capabilities.hpc.rules import HERE, rules
from gpuprov.capabilities.hpc.tasks import TASKS
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.rdma import ofed
from gpuprov.facts.probes.software import hpc as probe
from gpuprov.spec.model import Fragment


def export(facts: Facts) -> Fragment | None:
    """Return the HPC-X that /opt/hpcx leads to, or Open MPI of packages; None without any."""
    if facts.get(probe.HPC).link:
        return Hpc(mpi="hpcx")
    return Hpc() if {"openmpi", "openmpi-bin"} & facts.get(probe.PACKAGES).keys() else None


def doubts(facts: Facts) -> Iterator[str]:
    """Yield UCX and Open MPI of two origins on one host."""
    if mixed := find_mixed(facts):
        yield f"Open MPI and UCX of two origins: {mixed}"


CAPABILITY = Capability(
    name=HERE,
    summary="Open MPI and UCX in step with the RDMA stack, HPC-X, and NCCL's SHARP plugin",
    fragment=Hpc,
    checks=CHECKS,
    rules=rules,
    export=export,
    export_probes=(probe.HPC, probe.PACKAGES, ofed.PACKAGES, system.OS_RELEASE),
    doubts=doubts,
    follows=("rdma",),
    tasks=TASKS,
    desired=DESIRED,
    resources=RESOURCES,
    packages=True,
    driverless=True,
    not_rehearsed="a real ucx_info sees no simulated HCA, and HPC-X is NVIDIA's own archive",
    shown_by="tests/e2e/test_hpc.py",
    presupposes={
        "mpi": ("hpc.packages", "hpc.hpcx"),
        "ucx": ("hpc.packages", "hpc.hpcx"),
        "plugin": ("hpc.hpcx", "hpc.files"),
    },
)
