"""Desired state of the role: the packages that follow the driver, Fabric Manager's or nvidia-imex's files, and the
running daemon."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from gpuprov.capabilities.base import Context, Desired, Resources
from gpuprov.capabilities.driver import explain_absent_driver
from gpuprov.capabilities.fabric_manager.decision import PROBES, Decision, decide, installed, what
from gpuprov.capabilities.fabric_manager.fragment import (
    FabricManager,
    generation,
    hold,
    package,
    wanted_settings,
)
from gpuprov.capabilities.fabric_manager.log import mismatched
from gpuprov.capabilities.fabric_manager.tasks import TASKS
from gpuprov.capabilities.fabric_manager.tray import list_members, of_tray, package_only
from gpuprov.capabilities.steps import Need, Step, hand_steps
from gpuprov.catalog import fabric as catalogue
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.base import ProbeFailed
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.gpus import fabric, mig
from gpuprov.facts.probes.gpus.imex import IMEX
from gpuprov.facts.probes.host import system, systemd
from gpuprov.facts.probes.host.contents import READS, explain_age
from gpuprov.facts.probes.host.family import words
from gpuprov.host_code.json_members import Json
from gpuprov.resources import File, Lines, Resource, Unit, role_values
from gpuprov.spec.model import HostSpec

Ctx = Context[FabricManager]
Life = Literal["dead", "alive", "old"]
RESET = ["nvidia-smi", "-r"]
FREE: dict[Need, str] = {"gpus-free": "stop"}
# As earlier versions wrote it: another text would have every running daemon restarted.
NODES_HEADER = "#\n# Ansible managed\n#\n"
DROP_IN = """# Managed by gpuprov: change the inventory, then apply again.
# Started before the host has its address, nvidia-imex finds no interface for any node of its list, and ends.
[Unit]
Wants=network-online.target
After=network-online.target

[Service]
Restart=on-failure
RestartSec=5
"""


class Daemon(msgspec.Struct, frozen=True):
    """Fabric Manager, or nvidia-imex in its place: its unit, its program's name and path, its configuration file, and
    its current state."""

    unit: str
    process: str
    program: str
    config: str
    seen: fabric.Daemon
    active: bool
    # What a running daemon is older than.
    age: str

    @property
    def outdated(self) -> str:
        """The reason to restart a daemon whose unit is active (a oneshot unit stays active without a process); empty
        without one."""
        if self.seen.process(self.process) is None:
            return "active without a process" if self.active else ""
        return self.age

    def life(self) -> Life:
        """Return the daemon's state. `old`: it is running, and its program or its configuration has changed since it
        was started."""
        if self.seen.process(self.process) is None or not self.active:
            return "dead"
        return "old" if self.outdated else "alive"


def reads(_host: HostSpec, block: FabricManager) -> dict[str, tuple[str, ...]]:
    """Return what the daemon has read at its start, by unit."""
    if of_tray(block):
        return {catalogue.IMEX_UNIT: (catalogue.IMEX_PROGRAM, catalogue.IMEX_CONFIG, catalogue.IMEX_NODES)}
    return {catalogue.UNIT: (catalogue.PROGRAM, catalogue.get_configuration_file())}


def daemon(ctx: Ctx) -> Daemon:
    """Return the daemon that the block configures."""
    newer = ctx.facts.get(READS)
    if of_tray(ctx.fragment):
        state = ctx.facts.get(IMEX)
        program, config = catalogue.IMEX_PROGRAM, catalogue.IMEX_CONFIG
        age, active = explain_age(catalogue.IMEX_UNIT, newer), state.active == "active"
        return Daemon(catalogue.IMEX_UNIT, "nvidia-imex", program, config, state.daemon, active, age)
    unit = ctx.facts.get(systemd.SYSTEMD_UNITS)[catalogue.UNIT]
    program, config, seen = catalogue.PROGRAM, catalogue.get_configuration_file(), ctx.facts.get(fabric.DAEMON)
    age, active = explain_age(catalogue.UNIT, newer), unit.active == "active"
    return Daemon(catalogue.UNIT, "nv-fabricmanager", program, config, seen, active, age)


def settings(block: FabricManager) -> dict[str, str]:
    """Return the lines that the daemon's configuration file should have; its others stay as they are."""
    if of_tray(block):
        return {} if package_only(block) else dict(catalogue.IMEX_SETTINGS)
    return wanted_settings(block)


def files(block: FabricManager) -> dict[str, str]:
    """Return files by path: the members of the IMEX domain, and the unit that waits for the host's address."""
    members = "".join(f"{node}\n" for node in list_members(block))
    return {catalogue.IMEX_NODES: NODES_HEADER + members, catalogue.IMEX_DROP_IN: DROP_IN} if members else {}


def reboot(ctx: Ctx) -> str:
    """Return the reason why the parameter for IMEX channel 0 needs a reboot; empty if it needs none."""
    has_channel = of_tray(ctx.fragment) and ctx.fragment.imex.channel0 and not ctx.facts.get(system.CONTAINER)
    wrong = has_channel and ctx.facts.get(IMEX).parameter not in ("", "1")
    return f"the driver was loaded without {catalogue.IMEX_PARAMETER}=1" if wrong else ""


def needs_reboot(ctx: Ctx, service: Daemon) -> str:
    """Return the reason why the installed program cannot start before the driver is reloaded; empty if it can, and
    without a driver."""
    loaded, program = ctx.facts.get(nvidia.DRIVER).version, service.seen.version
    if not loaded or not program or program == loaded:
        return ""
    return f"{what(ctx.fragment)} {program} starts with driver {program} only, and {loaded} is loaded"


def note(ctx: Ctx, service: Daemon) -> str:
    """Describe a daemon that is not running: a process without its unit, GPUs that look healthy regardless, its last
    error."""
    running = service.seen.process(service.process)
    notes = [f"process {running.pid} lives on without it"] if running and not service.active else []
    if not running and not of_tray(ctx.fragment):
        latched = sum(gpu.state == "Completed" for gpu in ctx.facts.known(fabric.STATE) or ())
        notes += [f"the latched fabric state is still Completed on {counted(latched, 'GPU')}"] * bool(latched)
    return "; ".join([*notes, *filter(None, [mismatched(service.seen)])])


def desired(ctx: Ctx) -> Iterator[Resource]:
    """Yield the daemon's unit, on, or off if Kubernetes starts the daemon; and the files that it reads."""
    service = daemon(ctx)
    yield from (File(path, text) for path, text in files(ctx.fragment).items())
    if keys := settings(ctx.fragment):
        yield Lines(path=service.config, keys=keys)
    if package_only(ctx.fragment):
        yield Unit(name=service.unit, enabled=False, active=False)
        return
    why = "" if service.seen.process(service.process) else explain_absent_driver(ctx.facts)
    yield Unit(
        name=service.unit,
        enabled=True,
        active=None if why else True,
        waits=why,
        reboot=needs_reboot(ctx, service),
        outdated=service.outdated,
        reads=reads(ctx.host, ctx.fragment)[service.unit],
        process=service.process,
        note=note(ctx, service),
    )


def list_steps(ctx: Ctx, service: Daemon, values: Mapping[str, Any]) -> Iterator[Step]:
    """Yield what is done with the daemon by the tasks of the last stage."""
    # GPUs of boards that register with the fabric are reset while Fabric Manager is stopped, in the order of the guide:
    # https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide. Those of NVLink 5 with shared NVSwitches are
    # reset after its start, as they may hold partitions of an earlier run:
    # https://github.com/NVIDIA/gpu-driver-container/pull/909
    on_disk, loaded = service.seen.version, ctx.facts.get(nvidia.DRIVER).version
    starts, now, boards = (
        bool(values["run"]) and bool(on_disk) and on_disk == loaded,
        service.life(),
        generation(ctx.facts),
    )
    machine = not ctx.facts.get(system.CONTAINER)
    before = starts and now == "old" and machine and boards >= catalogue.REGISTERS_SINCE
    shared = ctx.fragment.fabric_mode == "shared-nvswitch" and boards >= catalogue.BRIDGED_GENERATION
    after = starts and now != "alive" and machine and shared
    parted = before and any("/gi" in fact.path for fact in ctx.facts.get(mig.CAPABILITIES))
    message = ""
    if on_disk and values["on"] and not starts:
        message = (
            f"{what(ctx.fragment)} {on_disk} waits for a driver of its version: loaded is {loaded or 'none'}. "
            "Reload the driver, or reboot"
        )
    elif parted:
        message = (
            "the GPUs are not reset, and keep their registration with the fabric: "
            "they have MIG instances, which a reset would lose"
        )
    fix = f"journalctl -u {service.unit}, on the host; gpuprov explain finds most of its messages"
    own = {**run, "fix": fix} if (run := next(iter(values["run"]), None)) else {}
    yield Step("waits", {"msg": message}, message)
    yield Step("unit", own, starts, FREE if now == "old" else {})
    yield Step("reset_before", {"argv": RESET}, before and not parted, FREE)
    yield Step("reset_after", {"argv": RESET}, after, FREE)
    yield Step("start", {}, starts)


def missing_config(ctx: Ctx, service: Daemon, decision: Decision) -> None:
    """Raise ProbeFailed if the package is installed as it should be, and its configuration file is missing."""
    own_package = package(ctx.facts, "imex" if of_tray(ctx.fragment) else "fabric-manager")
    if (
        own_package
        and decision.packages
        and not decision.moves
        and settings(ctx.fragment)
        and not service.seen.configured
    ):
        command = words(ctx.facts.get(system.OS_RELEASE)).reinstall
        more = " with -o Dpkg::Options::=--force-confmiss" if command.startswith("apt-get") else ""
        message = f"{service.config} does not exist, although {own_package.name} is installed"
        raise ProbeFailed(message, f"{command} {own_package.name}{more}, then apply again")


def transaction(ctx: Ctx, decision: Decision) -> dict[str, Json]:
    """Return `install`, `remove`, `hold`, `release`: packages."""
    present = installed(ctx.facts)
    pinned = [f"{name}={version}" for name, version in decision.packages.items()]
    own = pinned[:1] if decision.moves else []
    along = [f"{name}={version}" for name, version in [*decision.packages.items()][1:] if present.get(name) != version]
    held_names = (
        [*decision.packages, *(["nvlsm"] if "nvlsm" in (*present, *decision.subnet) else [])]
        if decision.packages
        else []
    )
    return {
        "install": [*own, *along, *decision.subnet],
        "remove": list(decision.replaced),
        "hold": held_names if hold(ctx.host) else [],
        "release": [] if hold(ctx.host) else held_names,
    }


def waiting(ctx: Ctx, decision: Decision) -> dict[str, str]:
    """Return what cannot be resolved before nvidia_driver has added a package source, as the preflight takes it."""
    message = f"what {what(ctx.fragment)} needs is resolved when apply has added {decision.source}"
    return {"told": message, "problem": f"{decision.problem}. Fix: {decision.fix}"} if decision.source else {}


def make(ctx: Ctx) -> Mapping[str, Json]:
    """Return the role's values. `of`: its name. The transaction: `install`, `remove`, `hold`, `release`; `later`: what
    it waits for. The values of its files and lines. `reboot`: the reason for one. `runtime`: the units at a boot, once
    the package is there."""
    # Everything that holds GPUs is stopped for another package, since its own scripts may stop or restart the daemon,
    # and with it every CUDA job (ABORT_CUDA_JOBS_ON_FM_EXIT).
    decision, service = decide(ctx), daemon(ctx)
    if decision.problem and not decision.source:
        raise ProbeFailed(decision.problem, decision.fix)
    missing_config(ctx, service, decision)
    values = role_values(desired(ctx), "files", "lines", "on", "off", "run")
    coming = Decision() if decision.problem else decision
    replaces = coming.moves and coming.packages and service.life() != "dead"
    return {
        "later": waiting(ctx, decision),
        "of": what(ctx.fragment),
        "fix": "name another driver's version, or correct what it reports",
        **transaction(ctx, coming),
        "lines": values["lines"],
        "files": values["files"],
        "reboot": reboot(ctx),
        "runtime": {"off": values["off"], "on": values["on"] if service.seen.version else []},
        "tasks": hand_steps([Step("replace", {}, replaces), *list_steps(ctx, service, values)], TASKS),
    }


RESOURCES = Resources(
    desired,
    lambda _host, block: files(block),
    (fabric.DAEMON, fabric.STATE, IMEX, READS, systemd.SYSTEMD_UNITS, nvidia.DRIVER, system.CONTAINER),
    reads=reads,
    lines=(catalogue.get_configuration_file(), catalogue.IMEX_CONFIG),
    units=lambda _host, block: (catalogue.IMEX_UNIT if of_tray(block) else catalogue.UNIT,),
    proves={"files": ("fabric_mode", "settings", "imex"), "enabled": ("imex",), "active": ("imex",)},
)
DESIRED = Desired(
    (*PROBES, fabric.DAEMON, IMEX, READS, mig.CAPABILITIES, systemd.SYSTEMD_UNITS, system.CONTAINER), make
)
