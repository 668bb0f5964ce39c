"""The `slurm` block, and what it means on a given host."""

from typing import Annotated, Literal

import msgspec

from gpuprov.capabilities.base import Context
from gpuprov.catalog import gpus, xids
from gpuprov.facts.probes.gpus import mig
from gpuprov.facts.probes.host.slurm import SLURM
from gpuprov.host_code.at_boot import slurm as onhost
from gpuprov.spec.described import describe
from gpuprov.spec.model import Fragment, HostSpec

HERE = "slurm"
# Actions after an Xid which mean that the host takes no more jobs until somebody has acted. What a GPU reset repairs,
# NVML reports as long as it lasts.
FATAL = ("reboot", "drain", "return")


class Containers(Fragment, frozen=True):
    """enroot and pyxis on this node, both installed by other means: their settings, and each user's folders before a
    job."""

    WHEN_PRESENT = {"enroot": True}

    enroot: Annotated[
        bool,
        describe(
            "enroot's folders for each user, made by a Prolog that slurm.conf has to name; false: nothing is managed"
        ),
    ] = False
    pyxis: Annotated[
        bool, describe("srun --container-image: the plugin in plugstack.conf.d, built for the slurmd that is installed")
    ] = False
    folder: Annotated[
        str,
        describe(
            "A folder on a local disk for layers, containers and temporary files of all users: letters, digits, / "
            ". _ -",
            pattern=r"^(/[A-Za-z0-9_][A-Za-z0-9_.-]*)+$",
        ),
    ] = "/var/lib/enroot"


class Slurm(Fragment, frozen=True):
    """GPUs of a compute node of Slurm: gres.conf, ConstrainDevices, slurmd after the GPUs, a health check. slurm.conf
    is the cluster's and stays as it is; slurmd is neither installed nor started."""

    gres: Annotated[
        Literal["auto", "nvml", "files", "site"],
        describe(
            "How gres.conf names the GPUs. nvml: AutoDetect=nvml, for a slurmd built with NVML; files: a line for "
            "each device; auto: nvml where slurmd has it, else files; site: gres.conf is the site's, and only "
            "compared with the GPUs"
        ),
    ] = "auto"
    type: Annotated[
        str,
        describe(
            "The type of whole GPUs (h100): letters, digits, _ . -; empty: the model in lower case. MIG devices have "
            "their profile as type, and AutoDetect=nvml names the types itself",
            pattern=r"^([A-Za-z0-9][A-Za-z0-9_.-]{0,63})?$",
        ),
    ] = ""
    shards: Annotated[int, describe("How many jobs share a GPU as shards; 0: none", ge=0, le=1024)] = 0
    constrain_devices: Annotated[
        bool, describe("ConstrainDevices=yes in cgroup.conf: a job reaches no GPU but its own")
    ] = True
    health_check: Annotated[
        bool, describe("A HealthCheckProgram that drains the node when a GPU is unfit; slurm.conf has to name it")
    ] = False
    containers: Annotated[Containers, describe("Containers of jobs by enroot and pyxis")] = Containers()


Ctx = Context[Slurm]


def gpu_type(host: HostSpec, block: Slurm) -> str:
    """Return the type of whole GPUs; empty if the spec does not say which GPUs the host has."""
    model = gpus.find_gpu(host.gpu.model) if host.gpu else None
    return block.type or (model.key.lower() if model else "")


def make_request(ctx: Ctx) -> onhost.Config:
    """Return the content of slurm.json, the input of the programs on the host."""
    block, host = ctx.fragment, ctx.host
    known = xids.read_xids_file().xids
    fatal_xids = {
        str(number): needs.words
        for xid in known
        if (needs := xids.find_resolution(xid.nvidia)) and needs.action in FATAL
        for number in xid.xids
    }
    detected = "nvml" if ctx.facts.get(SLURM).nvml else "files"
    return {
        "gres": detected if block.gres == "auto" else block.gres,
        "type": gpu_type(host, block),
        "shards": block.shards,
        "count": (host.gpu.count or 0) if host.gpu else 0,
        "xid": xids.XID.pattern,
        "xids": fatal_xids,
        "block": msgspec.to_builtins(block),
    }


def devices(ctx: Ctx, options: onhost.Config) -> list[onhost.Device]:
    """Return the devices that jobs should be able to have: GPUs, and MIG devices as they are now. Raises Refused."""
    nodes = {fact.path: fact.node for fact in ctx.facts.get(mig.CAPABILITIES)}
    mig_gpus: list[onhost.Gpu] = msgspec.to_builtins(ctx.facts.get(mig.STATE).gpus)
    return list(onhost.devices(mig_gpus, nodes, options["type"]))
