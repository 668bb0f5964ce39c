"""Desired state of the role: the unit that makes and mounts the file system at each boot, and services that wait for
it."""

from collections.abc import Iterator
from typing import Any, get_args

from gpuprov.capabilities.answers import APPLY, BEFORE, HEADER
from gpuprov.capabilities.at_boot import COMMON, command, files, unit
from gpuprov.capabilities.base import Desired, Resources
from gpuprov.capabilities.scratch.checks import FIELDS, STEPS, Ctx, decide, describe
from gpuprov.capabilities.scratch.fragment import Engine, lines
from gpuprov.catalog import scratch as catalogue
from gpuprov.facts.probes.host.scratch import DROP_IN, SCRATCH
from gpuprov.host_code.at_boot import scratch as onhost
from gpuprov.host_code.json_members import Json
from gpuprov.resources import Absent, File, Program, Resource, Unit, role_values

MODULES = (*COMMON, "scratch_state", "scratch")
PROGRAM = files("scratch", MODULES)
UNIT_FILE = f"/etc/systemd/system/{catalogue.UNIT}"
DROP_INS = {engine: f"/etc/systemd/system/{engine}.service.d/{DROP_IN}" for engine in get_args(Engine)}
# Seconds that the unit waits for the disks.
PATIENCE = 30
FIX = f"see systemctl status {catalogue.UNIT}, free the disks that it names; then {APPLY}"
TOOLS = {"mdadm": "mdadm", "mkfs.xfs": "xfsprogs", "mkfs.ext4": "e2fsprogs"}
UNIT = unit(
    f"""
Description=Scratch file system on local NVMe disks
{BEFORE}""",
    f"""
ExecStartPre=-/usr/bin/env udevadm settle --timeout=60
ExecStart={command("scratch", "scratch", "apply", PATIENCE)}
TimeoutStartSec=900
""",
)
# Requires= would also stop the service whenever the unit is restarted; an assertion only keeps it from starting:
# https://www.freedesktop.org/software/systemd/man/systemd.unit.html
WAITS = f"""{HEADER}[Unit]
Wants={catalogue.UNIT}
After={catalogue.UNIT}
AssertPathIsMountPoint={{mount}}
"""


def differs(ctx: Ctx) -> str:
    """Return what the unit has to do now; empty if the file system is mounted."""
    decision = decide(ctx)
    if decision.action == onhost.KEEP:
        return ""
    return f"{STEPS.get(decision.action, 'not possible')} -> {describe(ctx, decision)}"


def desired(ctx: Ctx) -> Iterator[Resource]:
    """Yield the unit with its configuration and program, and a drop-in for each service that requires the file
    system."""
    yield from (Program(path, name) for path, name in PROGRAM.items())
    yield File(onhost.CONFIG, HEADER + "".join(f"{line}\n" for line in lines(ctx.fragment)))
    yield File(UNIT_FILE, UNIT)
    for engine, path in DROP_INS.items():
        yield File(path, WAITS.format(mount=ctx.fragment.mount)) if engine in ctx.fragment.required_by else Absent(path)
    yield Unit(name=catalogue.UNIT, enabled=True, active=True, fix=FIX)


def make(ctx: Ctx) -> dict[str, Json]:
    """Return the role's values. `install`: packages with the programs that the unit runs."""
    values = role_values(desired(ctx), "program", "files", "units", "absent", "on")
    del values["on"]
    tools = ctx.facts.get(SCRATCH).state.tools
    needed = [tool for tool in (f"mkfs.{ctx.fragment.filesystem}", "mdadm") if tool not in tools]
    own = {"name": catalogue.UNIT, "state": "ran", "enabled": True, "program": "scratch"}
    return {
        "of": "the scratch file system",
        "install": [TOOLS[tool] for tool in needed],
        **values,
        "tasks": {"unit": {**own, "differs": differs(ctx), "fix": FIX}},
    }


DESIRED: Desired[Any] = Desired((SCRATCH,), make)
RESOURCES: Resources[Any] = Resources(
    desired,
    lambda _host, _block: (onhost.CONFIG, UNIT_FILE, *PROGRAM, *DROP_INS.values()),
    (SCRATCH,),
    units=lambda _host, _block: (catalogue.UNIT,),
    proves={"files": (*FIELDS, "required_by"), "enabled": FIELDS, "active": FIELDS},
)
