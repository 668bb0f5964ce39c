"""Desired state of the role: the changes to each GPU, the affected processes, the services stopped meanwhile, and the
unit for each boot."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from gpuprov.capabilities import at_boot
from gpuprov.capabilities.answers import BEFORE
from gpuprov.capabilities.at_boot import ABOVE
from gpuprov.capabilities.base import Context, Desired, Outcome, Resources
from gpuprov.capabilities.mig import config_file, host
from gpuprov.capabilities.mig.fragment import Mig, plain_layout
from gpuprov.capabilities.mig.now import FIELDS, HOST_STATE, STATE, list_changes, unreadable, users
from gpuprov.capabilities.mig.tasks import TASKS
from gpuprov.capabilities.steps import Need, Step, hand_steps
from gpuprov.catalog import gpus
from gpuprov.facts.probes.base import ProbeFailed
from gpuprov.facts.probes.gpus import mig
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.host.house import REBOOT_REASONS
from gpuprov.host_code import mig_program
from gpuprov.host_code.files import PYTHON
from gpuprov.host_code.json_members import Json
from gpuprov.resources import File, Program, Resource, Unit, role_values
from gpuprov.spec.model import HostSpec

Ctx = Context[Mig]
# Modules of gpuprov/host_code/mig, beside the two that make it a program.
MODULES = ("act", "apply", "fit", "layout", "nvml", "plan", "state", "units", "users")
# Files of the program as a rendered project has them, beside the rest of the role; pynvml.py is nvidia-ml-py's.
PROGRAM = ("__init__.py", "__main__.py", *(f"{name}.py" for name in MODULES), "pynvml.py")
FOLDER = f"{ABOVE}/mig"
MODELS, UNIT_FILE = f"{FOLDER}/models.json", f"/etc/systemd/system/{mig.UNIT}"
# Every path that the role may write.
PATHS = (*(f"{FOLDER}/{name}" for name in PROGRAM), MODELS, UNIT_FILE, mig_program.WANTED)
# Services that hold GPUs but do not see MIG, and whose end would disturb programs on other instances.
QUIET = (
    *("nvidia-persistenced.service", "gpuprov-persistence.service", "nvidia-gridd.service"),
    "nvidia-fabricmanager.service",
)
TOP = """# The mode is lost at a boot from Hopper on, the instances on every GPU:
# https://docs.nvidia.com/datacenter/tesla/mig-user-guide/getting-started-with-mig.html
"""
ORDER = f"""
Description=MIG mode, GPU instances and compute instances of the NVIDIA GPUs
ConditionPathExists={mig_program.WANTED}
After=systemd-modules-load.service nvidia-persistenced.service gpuprov-persistence.service nvidia-fabricmanager.service
Before=nvidia-cdi-refresh.service gpuprov-cdi-refresh.service
{BEFORE}Before=nvidia-dcgm.service dcgm.service nvidia-dcgm-exporter.service dcgm-exporter.service
"""


def unit(spec: HostSpec) -> str:
    """Return the unit that restores the layout with the program."""
    command = f"{PYTHON} -B -m mig boot --wait 120 --services {','.join(host.services(spec))}"
    return at_boot.unit(ORDER, f"ExecStart={command}\nTimeoutStartSec=300", top=TOP)


def make_request(block: Mig) -> dict[str, Json]:
    """Return the program's request. Raises ProbeFailed if the file on this machine cannot be read."""
    parted = None
    if block.config_file:
        config = config_file.read(block.config_file, block.selected)
        if config.troubles:
            raise ProbeFailed(config.troubles[0].message, config.troubles[0].fix)
        parted = config.entries
    return {"version": 1, "mode": block.mode, "layout": plain_layout(block), "mig_parted": parted}


def stopped(spec: HostSpec, ending: list[str]) -> list[str]:
    """Return the services that are stopped for a change: those that watch the GPUs, which read their MIG devices when
    they start and may keep instances from being destroyed, and, of the others such as MPS's daemons, those whose
    instances are removed."""
    watching = [service for service in host.services(spec) if "*" not in service and service not in QUIET]
    return watching + [service for service in ending if service not in (*watching, *QUIET)]


def desired(ctx: Ctx) -> Iterator[Resource]:
    """Yield the unit, the program that it starts, and the file that the program reads."""
    yield from (Program(f"{FOLDER}/{name}", name) for name in PROGRAM)
    yield File(MODELS, json.dumps(gpus.index_by_nvml_id()) + "\n")
    yield File(UNIT_FILE, unit(ctx.host))
    yield File(mig_program.WANTED, mig_program.format_config(msgspec.to_builtins(make_request(ctx.fragment))))
    answer = unreadable(ctx)
    waits = answer.found if answer and answer.status == "skip" else ""
    yield Unit(name=mig.UNIT, enabled=True, active=None if waits else True, waits=waits)


def make(ctx: Ctx) -> dict[str, Json]:
    """Return the role's values: those of its resources, but for the program's request, `wanted`, which step mig keeps
    for each boot once it has been applied.

    Of that step, `steps`: the changes that the program would make. `later`: why the state of the GPUs is unknown;
    `waits`: the driver comes with a boot. `problem`: why the layout is impossible. `stop`: services that are stopped
    for it, unless all are for a reset, which a change of mode may need; `watching`: services that will not see it.
    `may_reset`: a GPU can be reset from here. Then services whose own role starts them again are left, and containers
    are told of the new devices. The host is drained if something that must go is in use.
    """
    state, contained = ctx.facts.get(mig.STATE), bool(ctx.facts.get(system.CONTAINER))
    resources = [
        resource
        for resource in desired(ctx)
        if not (isinstance(resource, File) and resource.path == mig_program.WANTED)
    ]
    values = role_values(resources, "program", "files", "units", "on", "run")
    containers = getattr(ctx.host.capabilities.get("container_toolkit"), "cdi_directory", "")
    steps = [
        Step("start", {"leave": ["gpuprov-mps@*.service"] if ctx.applies("mps") else []}),
        Step("unit", [{**entry, "program": "mig"} for entry in values.pop("run")]),
        Step("cdi", {"directory": containers}, containers),
    ]
    made: dict[str, Json] = {
        "wanted": make_request(ctx.fragment),
        "services": host.services(ctx.host),
        "may_reset": not contained,
        "waits": contained or bool(ctx.facts.get(REBOOT_REASONS)),
        "later": state.complaint or ("" if state.gpus or state.unread else "NVML lists no GPU"),
    }
    plan = list_changes(ctx)
    if isinstance(plan, Outcome):
        problem = f"mig: {plan.found}. Fix: {plan.fix}" if plan.status == "fail" and not made["later"] else ""
        nothing: dict[str, Json] = {"steps": [], "stop": [], "watching": []}
        return {**values, "tasks": hand_steps([*steps, Step("mig", {**made, "problem": problem, **nothing})], TASKS)}
    return {**values, "tasks": hand_steps([*steps, _build_step(ctx, plan, made)], TASKS)}


def _build_step(ctx: Ctx, plan: list[host.Needs], made: Mapping[str, Json]) -> Step:
    """Return the step that makes the changes: the services to stop for them, and what the host must be for it."""
    met = [user for user in users(ctx) if any(host.concerns(need, user) for need in plan)]
    ending = sorted({user.holder.unit for user in met if host.is_service(user.holder.unit, ctx.host)})
    changed = {need.gpu.index for need in plan if need.change.anything}
    others = [user for user in users(ctx) if not host.is_service(user.holder.unit, ctx.host)]
    computing = {user.holder.pid for user in others if user.computes}
    watching = {str(other.holder) for other in others if other.gpu in changed and other.holder.pid not in computing}
    problems = "; ".join(need.problem for need in plan if need.problem)
    needs: dict[Need, str] = {"host-drained": "drain"} if any(user in others for user in met) else {}
    if any(need.change.switches and host.resets(need.gpu) for need in plan):
        needs["gpus-free"] = "stop"
    arguments = {
        **made,
        "problem": f"{problems}. Fix: correct mig in the spec; gpuprov mig layouts lists what fits" if problems else "",
        "steps": [step for need in plan for step in need.change.steps()] + _list_missing_nodes(ctx),
        "stop": stopped(ctx.host, ending),
        "watching": sorted(watching),
    }
    return Step("mig", arguments, needs=needs)


def _list_missing_nodes(ctx: Ctx) -> list[str]:
    """Return the device nodes of instances that are missing, or lack the driver's mode."""
    lacking = [
        fact for fact in ctx.facts.get(mig.CAPABILITIES) if fact.mode != fact.expected and not (fact.mode and fact.kept)
    ]
    return [f"make {len(lacking)} device node(s) in /dev/nvidia-caps"] if lacking else []


DESIRED: Desired[Any] = Desired((*HOST_STATE, REBOOT_REASONS), make)
RESOURCES: Resources[Any] = Resources(
    desired,
    lambda _host, _block: PATHS,
    STATE,
    units=lambda _host, _block: (mig.UNIT,),
    proves={"files": FIELDS, "enabled": FIELDS},
)
