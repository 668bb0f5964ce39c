"""Checks of the daemons as they are now: one for each, running, responding, with its limits, its user's server, its
GPUs in their compute mode."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from gpuprov.capabilities.answers import APPLY
from gpuprov.capabilities.base import Context, Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.compared import Group, compared, restart_unit
from gpuprov.capabilities.driver import find_current_branch
from gpuprov.capabilities.mps.fragment import STATE, Mps, Wanted, limit_for, list_daemons, shown, without_gpu
from gpuprov.catalog import find_by_pci_id
from gpuprov.catalog import mps as catalogue
from gpuprov.core.safe_parse import is_whole
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.gpus import mps
from gpuprov.facts.probes.gpus.mps import Daemon
from gpuprov.facts.probes.host import pci
from gpuprov.resources import Setting

Ctx = Context[Mps]
LOG = "journalctl -u 'gpuprov-mps@*' -n 30"


def unit(name: str) -> str:
    """Return the unit of a daemon."""
    return catalogue.UNITS.replace("*", name)


def pairs(ctx: Ctx) -> Iterable[tuple[Wanted, Daemon]]:
    """Yield each wanted daemon that runs, with its process."""
    state = ctx.facts.get(mps.MPS)
    for target in list_daemons(ctx.fragment, state)[0]:
        for daemon in state.daemons:
            if daemon.devices == target.devices and daemon.unit.startswith("gpuprov-mps@"):
                yield target, daemon


def called(target: Wanted, daemon: Daemon) -> str:
    """Return the name of a daemon."""
    return target.name or daemon.unit.removeprefix("gpuprov-mps@").removesuffix(".service")


def unjudged(ctx: Ctx) -> Outcome | None:
    """Return the outcome if there is nothing to compare: no GPU, or devices that cannot have these daemons."""
    if reason := without_gpu(ctx.facts):
        return skip(reason)
    problem = list_daemons(ctx.fragment, ctx.facts.get(mps.MPS))[1]
    return fail(f"daemons of scope {ctx.fragment.scope}", problem, "see mps.gpus") if problem else None


def in_the_way(daemon: Daemon, taken: set[str]) -> bool:
    """Return whether an unwanted daemon is gpuprov's own, or has a device of a wanted one: without UUIDs it may have
    any."""
    known = all(device.startswith(("GPU-", "MIG-")) for device in daemon.devices)
    overlaps = not daemon.devices or not known or bool(taken & set(daemon.devices))
    return daemon.unit.startswith("gpuprov-mps@") or (bool(taken) and overlaps)


@check("mps.daemons", *STATE, fields=("scope", "groups"), evidence="systemctl status 'gpuprov-mps@*'")
def daemons(ctx: Ctx) -> Outcome:
    """One control daemon of its unit answers for each wanted set of devices, and no other daemon has any of these
    devices."""
    if answer := unjudged(ctx):
        return answer
    state = ctx.facts.get(mps.MPS)
    rows = list_daemons(ctx.fragment, state)[0]
    running = list(pairs(ctx))
    expected = f"{counted(len(rows), 'daemon')}, each answering"
    missing = [target for target in rows if target not in [row for row, _ in running]]
    if missing:
        name, device = missing[0].name, missing[0].devices[0]
        changes = [] if name else restart_unit(f"MPS daemon of {device}", "", "active")
        return fail(expected, f"no daemon for {name or device}", LOG, changes=changes)
    own_pids = [daemon.pid for _, daemon in running]
    taken = {device for row in rows for device in row.devices}
    others = [daemon for daemon in state.daemons if daemon.pid not in own_pids and in_the_way(daemon, taken)]
    if others:
        shown_as = ", ".join(
            f"pid {other.pid} ({other.unit or 'of no unit'}, {other.pipe or catalogue.PIPES['v2']})" for other in others
        )
        fix = f"{APPLY} stops gpuprov's; end others: echo quit | CUDA_MPS_PIPE_DIRECTORY=... {catalogue.CONTROL}"
        return fail(expected, f"unwanted daemons: {shown_as}", fix)
    for target, daemon in running:
        restart = restart_unit(unit(called(target, daemon)), "running")
        if daemon.complaint:
            return fail(
                expected,
                f"{called(target, daemon)}: {daemon.complaint}",
                f"systemctl restart {daemon.unit}",
                changes=restart,
            )
    return ok(
        ", ".join(f"{called(target, daemon)}: pid {daemon.pid}" for target, daemon in running) or "no daemon", expected
    )


class Limit(NamedTuple):
    """A limit of a daemon: its name, its actual value, the expected one."""

    what: str
    actual: str
    value: str


def list_limits(ctx: Ctx, target: Wanted, daemon: Daemon) -> Iterable[Limit]:
    """Yield the limits of a daemon."""
    fragment, state = ctx.fragment, ctx.facts.get(mps.MPS)
    percentage, priority = f"{fragment.active_thread_percentage}.0", catalogue.PRIORITIES[fragment.priority]
    yield Limit("active thread percentage", daemon.percentage or "none", percentage)
    yield Limit("client priority", daemon.priority or "none", priority)
    for number, device in enumerate(target.devices if fragment.protocol == "v2" else target.devices[:1]):
        limit = limit_for(fragment, device, state)
        actual = daemon.limits[number] if number < len(daemon.limits) else ""
        value = shown(limit) or "none"
        yield Limit(f"memory limit of {device}", value if actual in (shown(limit), limit) else actual or "none", value)
    for server in daemon.servers if not fragment.static_partitions else ():
        if server.percentage:
            yield Limit(f"active thread percentage of server {server.pid}", server.percentage, percentage)


@compared(
    "mps.limits",
    *STATE,
    fields=("active_thread_percentage", "pinned_memory_limit", "priority"),
    evidence=f"echo get_default_active_thread_percentage | {catalogue.CONTROL}",
)
def limits(ctx: Ctx) -> Group | Outcome:
    """Every daemon reports the limits of the spec: they are lost with a daemon, and any user can change them."""
    if answer := unjudged(ctx):
        return answer
    answering = [(target, daemon) for target, daemon in pairs(ctx) if not daemon.complaint]
    expected = f"{ctx.fragment.active_thread_percentage} % of the threads, priority {ctx.fragment.priority}"
    if ctx.fragment.pinned_memory_limit:
        expected += ", memory " + ", ".join(f"{key} {value}" for key, value in ctx.fragment.pinned_memory_limit.items())
    rows = [
        (called(target, daemon), f"pid {daemon.pid}", limit)
        for target, daemon in answering
        for limit in list_limits(ctx, target, daemon)
    ]
    group = Group(
        tuple(
            Setting(
                kind=limit.what,
                name=f"{name}: {limit.what}",
                device=pid,
                key=limit.what,
                value=limit.value,
                words=f"{name}: {{key}} is {{before}}, wanted {limit.value}",
            )
            for name, pid, limit in rows
        ),
        {(pid, limit.what): limit.actual for _, pid, limit in rows},
        expected=expected,
        right=expected,
    )
    silent = len(answering) < len(list_daemons(ctx.fragment, ctx.facts.get(mps.MPS))[0])
    if silent and not group.compare():
        return fail(expected, "a daemon does not run or does not answer", "see mps.daemons")
    return group


@compared("mps.static_partitions", *STATE, fields=("static_partitions",), evidence=f"echo lspart | {catalogue.CONTROL}")
def static_partitions(ctx: Ctx) -> Group | Outcome:
    """Every GPU has exactly the SM partitions of the spec."""
    if answer := unjudged(ctx):
        return answer
    value = sorted(ctx.fragment.static_partitions)
    expected, matches = f"partitions of {value} chunks", list(pairs(ctx))
    if value and not matches:
        return fail(expected, "no daemon runs", "see mps.daemons")
    rows = [(device, called(target, daemon), daemon) for target, daemon in matches for device in target.devices]
    values = {
        (device, f"pid {daemon.pid}"): str(
            sorted(n for key, chunks in daemon.partitions.items() if device.startswith(key) for n in chunks)
        )
        for device, _, daemon in rows
    }
    partitions = Setting(kind="SM partitions", value=str(value))
    return Group(
        tuple(
            msgspec.structs.replace(
                partitions,
                device=device,
                key=f"pid {daemon.pid}",
                name=f"SM partitions of {device}",
                words=f"{name}: {{before}} on {device}",
            )
            for device, name, daemon in rows
        ),
        values,
        expected=expected,
        right=expected if value else "none",
    )


@compared(
    "mps.compute_mode",
    *STATE,
    fields=("compute_mode",),
    evidence="nvidia-smi --query-gpu=index,compute_mode --format=csv",
)
def compute_mode(ctx: Ctx) -> Group | Outcome:
    """The daemons' GPUs are in the compute mode that the spec asks for, which their units set at each start; GPUs in
    MIG mode are in Default."""
    if answer := unjudged(ctx):
        return answer
    state = ctx.facts.get(mps.MPS)
    rows = list_daemons(ctx.fragment, state)[0]
    if not rows:
        return not_asked("no daemon in the spec")
    value = "Exclusive_Process" if ctx.fragment.exclusive else "Default"
    own_devices = {device for row in rows for device in row.devices}
    gpus = [gpu for gpu in state.gpus if gpu.mode != "[N/A]" and ({gpu.uuid, *gpu.mig_devices} & own_devices)]
    mode = Setting(kind="compute mode", value=value, clients=ctx.fragment.exclusive)
    return Group(
        tuple(
            msgspec.structs.replace(
                mode,
                device=f"GPU {gpu.index}",
                name=f"compute mode of GPU {gpu.index}",
                words=f"GPU {gpu.index}: {{before}}",
            )
            for gpu in gpus
        ),
        {(f"GPU {gpu.index}", ""): gpu.mode for gpu in gpus},
        expected=value,
        right=value,
        fix=f"{APPLY}; nvidia-smi -c does it too, until the next boot",
    )


@check("mps.servers", *STATE, fields=("user",), evidence=f"echo get_server_list | {catalogue.CONTROL}")
def servers(ctx: Ctx) -> Outcome:
    """With a user, each daemon has that user's server and no other: a daemon serves one user at a time, and others
    wait."""
    if answer := unjudged(ctx):
        return answer
    state, user = ctx.facts.get(mps.MPS), ctx.fragment.user
    rows = [(called(target, daemon), server) for target, daemon in pairs(ctx) for server in daemon.servers]
    sick = [
        f"{name}: server {server.pid} is {server.status}" for name, server in rows if server.status.upper() == "FAULT"
    ]
    if sick:
        return fail(
            "servers that work", ", ".join(sick), "end its clients; the server restarts by itself, or restart the unit"
        )
    listed = ", ".join(
        f"{name}: server {server.pid} of uid {server.uid}, {server.clients} clients" for name, server in rows
    )
    if not user or ctx.fragment.protocol == "v3":
        return ok(listed or "no server; the first client of a user starts one")
    number = int(user) if is_whole(user) else state.users.get(user)
    if number is None:
        return fail(f"a server of {user}", f"the host has no user {user}", "create the user, or correct mps.user")
    served = {name for name, server in rows if server.uid == number}
    strangers = [f"{name}: uid {server.uid}" for name, server in rows if server.uid != number]
    if strangers:
        fix = f"end the other user's clients; {user} waits until they are gone"
        return fail(f"servers of {user} only", ", ".join(strangers), fix)
    missing = [called(target, daemon) for target, daemon in pairs(ctx) if called(target, daemon) not in served]
    if missing or not served:
        log = f"see control.log in {catalogue.LOGS}"
        return fail(f"a server of {user}", f"no server: {' '.join(missing) or 'no daemon runs'}", f"{APPLY}; {log}")
    return ok(listed)


@check("mps.clients", *(mps.MPS, nvidia.LIBRARIES, nvidia.DRIVER, pci.NVIDIA_FUNCTIONS), fields=("clients",))
def clients(ctx: Ctx) -> Outcome:
    """The host's driver and GPUs allow the planned number of clients on a device; on a MIG device its share of them."""
    planned, branch = ctx.fragment.clients, find_current_branch(ctx.facts)
    models = [find_by_pci_id(gpu.identifier) for gpu in pci.gpus(ctx.facts.get(pci.NVIDIA_FUNCTIONS))]
    limit = min(
        (catalogue.find_client_limit(model, branch) for model in models),
        default=catalogue.find_client_limit(None, branch),
    )
    slices = [size for gpu in ctx.facts.get(mps.MPS).gpus for size in gpu.mig_devices.values()]
    if ctx.fragment.scope == "mig" and slices and planned > (share := catalogue.compute_mig_share(limit, min(slices))):
        message = f"inferred {share} on the smallest MIG device ({min(slices)} compute slices)"
        return fail(f"{planned} clients on each MIG device", message, f"clients: {share}, or larger MIG devices")
    if planned > limit:
        return fail(
            f"{planned} clients on a device",
            f"{limit} with driver branch {branch}",
            f"clients: {limit}, or a newer driver",
        )
    return ok(f"{limit} clients on a device", f"{planned} or more") if planned else not_asked()


CHECKS = (daemons, limits, static_partitions, compute_mode, servers, clients)
