"""Checks that clients find their daemon (login shells, services, containers), and that there is shared memory for
them."""

from __future__ import annotations

from gpuprov.capabilities.answers import APPLY
from gpuprov.capabilities.base import Change, Context, Outcome, check, fail, not_asked, ok
from gpuprov.capabilities.compared import Group, compared
from gpuprov.capabilities.mps.fragment import STATE, Mps, list_daemons
from gpuprov.capabilities.mps.now import unjudged
from gpuprov.catalog import mps as catalogue
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.gpus import mps
from gpuprov.resources import Setting

Ctx = Context[Mps]
DROP_IN = "50-gpuprov-mps.conf"


def drop_in(unit: str) -> str:
    """Return the path of gpuprov's drop-in for a service that is a client."""
    return f"/etc/systemd/system/{unit}.d/{DROP_IN}"


def environment_file(daemon: str) -> str:
    """Return the environment file of a daemon's clients; its unit writes it at each start."""
    return f"{catalogue.RUNTIME}/{daemon}.env"


def instances(ctx: Ctx) -> list[str]:
    """Return daemons and partitions that have an environment of their own."""
    state = ctx.facts.get(mps.MPS)
    rows = list_daemons(ctx.fragment, state)[0]
    names = (
        [row.name for row in rows]
        if ctx.fragment.scope != "mig"
        else [name for name, (_, on) in state.units.items() if on]
    )
    parts = [f"{name}-{number}" for name in names for number in range(len(ctx.fragment.static_partitions))]
    return names + parts


@check("mps.units", mps.MPS, fields=("units",), moment="next-boot", evidence=f"cat {drop_in('*')}")
def units(ctx: Ctx) -> Outcome:
    """No service that is not a client has a drop-in of gpuprov's. mps.files compares those of the clients."""
    paths = list_left(ctx)
    expected = ", ".join(f"{unit}: {name}" for unit, name in ctx.fragment.units.items()) or "no client"
    if not paths:
        return ok(expected)
    changes = [Change(kind="file", name=path, after="removed") for path in paths]
    return fail(expected, "; ".join(f"{path} is not asked for" for path in paths), APPLY, changes=changes)


def list_left(ctx: Ctx) -> list[str]:
    """Return the drop-ins of services that are no longer clients. No spec contains their paths, so that only the probe
    of MPS finds them."""
    known = {drop_in(unit) for unit in ctx.fragment.units}
    return sorted(path for path in ctx.facts.get(mps.MPS).files if path.endswith(f"/{DROP_IN}") and path not in known)


@check(
    "mps.environment",
    *STATE,
    fields=("container_directory",),
    evidence=f"cat {catalogue.RUNTIME}/*.env",
)
def environment(ctx: Ctx) -> Outcome:
    """Every daemon has written the current environment of its clients, and the snippet for containers if the spec asks
    for one."""
    if answer := unjudged(ctx):
        return answer
    state = ctx.facts.get(mps.MPS)
    names, folder = instances(ctx), ctx.fragment.container_directory
    expected = f"{catalogue.RUNTIME}/NAME.env" + (f" and {folder}/NAME.yaml" if folder else "")
    paths = {name: [environment_file(name), *([f"{folder}/{name}.yaml"] if folder else [])] for name in names}
    missing = [path for given in paths.values() for path in given if path not in state.files]
    if missing:
        changes = [Change(kind="file", name=path, after="written") for path in missing]
        return fail(expected, f"missing: {' '.join(missing)}", f"{APPLY}, or restart the units", changes=changes)
    for daemon in state.daemons:
        name = daemon.unit.removeprefix("gpuprov-mps@").removesuffix(".service")
        for path in paths.get(name, ()):
            if daemon.pipe not in state.files[path] or (
                ctx.fragment.scope == "mig" and daemon.devices[0] not in state.files[path]
            ):
                return fail(
                    f"{path} names {daemon.pipe}",
                    "it names another directory or device",
                    f"systemctl restart {daemon.unit}",
                )
    return ok(counted(len(names), "environment") if names else "no daemon", expected)


@compared("mps.shm", mps.MPS, fields=("shm_size",), evidence="df -h /dev/shm")
def shm(ctx: Ctx) -> Group | Outcome:
    """/dev/shm is at least as large as the spec asks for: clients and server share pinned memory through it. The units
    enlarge it at start."""
    size = ctx.fragment.shm_size
    available = ctx.facts.get(mps.MPS).shm
    if not size:
        return not_asked()
    if available is None:
        return fail(size, "/dev/shm is not mounted", "mount -t tmpfs tmpfs /dev/shm")
    least = int(size[:-1]) * (1024 if size.endswith("G") else 1)
    return Group(
        (
            Setting(
                kind="/dev/shm",
                value=str(least),
                how="least",
                words="{before} MiB",
                shown=size,
                before=f"{available} MiB",
            ),
        ),
        {("", ""): str(available)},
        expected=f"{size} or more",
        right=f"{available} MiB",
        fix=f"{APPLY}; mount -o remount,size={size} /dev/shm",
    )


CHECKS = (units, environment, shm)
