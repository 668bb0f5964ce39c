"""`slurm`: the GPUs of a compute node of Slurm, as slurmd and its jobs see them."""

from collections.abc import Iterable

import msgspec

from gpuprov.capabilities.at_boot import carried
from gpuprov.capabilities.base import LOADED, Capability
from gpuprov.capabilities.slurm.checks import CHECKS
from gpuprov.capabilities.slurm.desired import DESIRED, MODULES, RESOURCES
from gpuprov.capabilities.slurm.fragment import HERE, Slurm
from gpuprov.capabilities.slurm.tasks import TASKS
from gpuprov.core import safe_parse
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.host.slurm import SLURM
from gpuprov.spec.model import Fragment, HostSpec
from gpuprov.spec.problem import Problem, report_under

problem = report_under(HERE)


class Applied(msgspec.Struct, frozen=True):
    """The part of slurm.json on the host that holds the applied spec."""

    block: Slurm


def rules(host: HostSpec, block: Slurm) -> Iterable[Problem]:
    """Yield what cannot work on any host: shards of MIG devices, settings without effect."""
    cut = getattr(host.capabilities.get("mig"), "mode", "disabled") == "enabled"
    if block.shards and cut:
        message = f" is {block.shards}, and mig cuts GPUs into MIG devices, which Slurm does not share"
        yield problem(("shards",), message, "shards: 0; or mig: {mode: disabled}")
    if block.containers.pyxis and not block.containers.enroot:
        yield problem(
            ("containers", "pyxis"), " is true, and pyxis runs enroot", "containers: {enroot: true, pyxis: true}"
        )
    if block.type and block.gres in ("nvml", "site"):
        why = "AutoDetect=nvml names the types itself" if block.gres == "nvml" else "gres.conf is the site's"
        yield problem(
            ("type",),
            f' is "{block.type}", and has no effect with gres: {block.gres}, as {why}',
            "gres: files, or leave type out",
        )
    if block.shards and block.gres == "site":
        yield problem(
            ("shards",), " has no effect with gres: site", "gres: auto, or shards: 0 and the lines in your gres.conf"
        )
    if cut and block.gres != "nvml" and not block.constrain_devices:
        message = " is false, and jobs are kept to their MIG device by its device files alone"
        yield problem(("constrain_devices",), message, "constrain_devices: true, or gres: nvml")
    imex = getattr(host.capabilities.get("fabric_manager"), "imex", None)
    if imex and imex.nodes and imex.channel0:
        message = (
            " beside fabric_manager.imex.channel0: all jobs may open channel 0, and read each other's shared memory"
        )
        yield problem((), message, "channel0: false, and SwitchType=switch/nvidia_imex in slurm.conf", warning=True)


def export(facts: Facts) -> Fragment | None:
    """Return the block that gpuprov applied: without its files nobody can say what Slurm's own were meant to be."""
    try:
        return safe_parse.parse_typed_json(facts.get(SLURM).written, Applied).block
    except safe_parse.Unreadable:
        return None


CAPABILITY = Capability(
    name=HERE,
    summary="GPUs of a compute node of Slurm: gres.conf with MIG devices and shards, ConstrainDevices, a health "
    "check, enroot, pyxis",
    fragment=Slurm,
    checks=CHECKS,
    rules=rules,
    export=export,
    export_probes=(SLURM,),
    tasks=TASKS,
    desired=DESIRED,
    resources=RESOURCES,
    follows=("mig", "nvidia_driver"),
    carried=(*carried(MODULES), "gpuprov.facts.probes.gpus.mig_reader"),
    presupposes={
        "gres": ("slurm.node", "mig.instances", *LOADED),
        "health_check": LOADED,
        "constrained": ("slurm.node",),
    },
    shown_by="tests/capabilities/test_slurm_real.py",
    needs_gpu=True,
    not_rehearsed="slurmd and slurm.conf are the cluster's, and no simulated host has them",
)
