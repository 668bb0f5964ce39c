"""`rdma`: RDMA devices of InfiniBand, RoCE, iWARP, Alibaba eRDMA, AWS EFA, or software: stack, settings that survive a
reboot, NCCL."""

from gpuprov.capabilities.at_boot import carried
from gpuprov.capabilities.base import Capability
from gpuprov.capabilities.rdma import devices, infiniband, limits, preflight, reality, soft
from gpuprov.capabilities.rdma.at_boot import EVERY
from gpuprov.capabilities.rdma.desired import DESIRED, RESOURCES
from gpuprov.capabilities.rdma.efa import checks as efa
from gpuprov.capabilities.rdma.erdma import checks as erdma
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.capabilities.rdma.nccl import checks as nccl
from gpuprov.capabilities.rdma.nccl import topology as nccl_topology
from gpuprov.capabilities.rdma.ofed import checks as ofed
from gpuprov.capabilities.rdma.roce import checks as roce
from gpuprov.capabilities.rdma.rules import HERE, fleet_rules, rules
from gpuprov.capabilities.rdma.tasks import TASKS
from gpuprov.catalog import rdma as catalogue
from gpuprov.core.safe_parse import is_whole
from gpuprov.spec.kernel import Kernel, Limit
from gpuprov.spec.model import HostSpec


def contribute(_host: HostSpec, block: Rdma) -> Kernel | None:
    """Return the modules that the inbox stack loads at boot, and the limit on locked memory.

    DOCA-OFED's openibd loads its own modules; the unit of software devices loads theirs.
    """
    modules: tuple[str, ...] = ()
    if block.fabric != "soft" and block.own_stack == "inbox":
        drivers = {device.driver for device in block.devices if device.driver}
        mellanox = block.fabric in ("infiniband", "roce") and (not drivers or "mlx5_core" in drivers)
        keys = ["all", block.fabric, *["ipoib"] * block.ipoib, *["mlx5_core"] * mellanox]
        modules = catalogue.list_modules(*keys)
    limit: Limit = int(block.memlock) if is_whole(block.memlock) else "unlimited"
    if not modules and not block.memlock:
        return None
    return Kernel(modules_load=modules, limits={"memlock": limit} if block.memlock else {})


CAPABILITY = Capability(
    name=HERE,
    summary="RDMA devices of InfiniBand, RoCE, iWARP, Alibaba eRDMA, AWS EFA, or software: stack, settings that "
    "outlive a boot, NCCL",
    fragment=Rdma,
    checks=(
        *devices.CHECKS,
        *infiniband.CHECKS,
        *soft.CHECKS,
        *limits.CHECKS,
        *ofed.CHECKS,
        *roce.CHECKS,
        *erdma.CHECKS,
        *efa.CHECKS,
        *nccl.CHECKS,
        *nccl_topology.CHECKS,
        *preflight.CHECKS,
    ),
    rules=rules,
    fleet_rules=fleet_rules,
    contribute=contribute,
    export=reality.export,
    export_probes=reality.PROBES,
    packages=True,
    driverless=True,
    tasks=TASKS,
    desired=DESIRED,
    resources=RESOURCES,
    serves_jobs=True,
    carried=carried(EVERY),
    presupposes={
        **dict.fromkeys(("ports", "ipoib", "umad", "roce_settings", "roce_gids"), ("rdma.devices",)),
        "rate": ("rdma.devices", "rdma.ports"),
        **dict.fromkeys(
            ("ofed_held", "ofed_loaded", "ofed_built", "ofed_openibd", "files", "enabled", "active"),
            ("rdma.ofed_release",),
        ),
        **dict.fromkeys(("erdma_mode", "erdma_parameters", "erdma_ports"), ("rdma.erdma_driver",)),
        "efa_interfaces": ("rdma.efa_driver",),
        "efa_gpudirect": ("rdma.efa_driver",),
    },
)
