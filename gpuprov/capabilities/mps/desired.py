"""Desired state of the role: MPS's programs, the daemons' unit and configuration, the clients' environment, and the
daemons."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from gpuprov.capabilities.answers import BEFORE, HEADER
from gpuprov.capabilities.at_boot import PATH
from gpuprov.capabilities.base import Context, Desired, Resources
from gpuprov.capabilities.mps.clients import drop_in, environment_file, list_left
from gpuprov.capabilities.mps.decision import PROBES, decide
from gpuprov.capabilities.mps.fragment import STATE, Mps, Wanted, group_names, list_daemons, without_gpu
from gpuprov.capabilities.mps.now import called, pairs, unit
from gpuprov.catalog import mps as catalogue
from gpuprov.core.safe_parse import is_whole
from gpuprov.facts.probes.gpus import mps
from gpuprov.host_code import mps_program
from gpuprov.host_code.files import PYTHON
from gpuprov.host_code.json_members import Json
from gpuprov.host_code.mps.program import list_names_without_driver
from gpuprov.host_code.unit_files import Loaded
from gpuprov.resources import Absent, File, Resource, Unit, role_values
from gpuprov.spec.model import HostSpec

Ctx = Context[Mps]
UNIT_FILE, TMPFILES = f"/etc/systemd/system/{catalogue.UNIT}", "/etc/tmpfiles.d/gpuprov-mps.conf"
EACH = catalogue.UNIT.replace("@", "@*")
# Files that the daemons read at their start; the names of those of MIG devices are known on the host alone.
READS = {EACH: (mps_program.CONTROL,)}
UNIT = f"""{HEADER}[Unit]
Description=MPS control daemon %i
Documentation=https://docs.nvidia.com/deploy/mps/
After=nvidia-persistenced.service gpuprov-persistence.service nvidia-fabricmanager.service gpuprov-mig.service
# A container that comes first would run without MPS, and in EXCLUSIVE_PROCESS alone.
{BEFORE}StartLimitIntervalSec=300
StartLimitBurst=20

[Service]
# The program looks up the devices at each start: UUIDs of MIG devices change. It becomes the daemon, which it then gives its limits.
{PATH}
ExecCondition={PYTHON} -B -m mps present %i
ExecStart={PYTHON} -B -m mps start %i
ExecStartPost={PYTHON} -B -m mps ready %i
ExecStop={PYTHON} -B -m mps stop %i
# The daemon prints there what control.log has, too: a line and more for each question.
StandardOutput=null
StandardError=journal
Restart=always
RestartSec=2
TimeoutStartSec=90
TimeoutStopSec=60

[Install]
WantedBy=multi-user.target
"""


def plain(spec: HostSpec, block: Mps) -> dict[str, Json]:
    """Return the content of mps.json, the input of the program on the host."""
    return {
        "version": 1,
        "scope": block.scope,
        "groups": msgspec.to_builtins(block.groups),
        "protocol": block.protocol,
        "exclusive": block.exclusive,
        "percentage": block.active_thread_percentage,
        "memory": dict(block.pinned_memory_limit),
        "priority": catalogue.PRIORITIES[block.priority],
        "partitions": list(block.static_partitions),
        "user": block.user,
        "shm": block.shm_size,
        "container_directory": block.container_directory,
        "count": spec.gpu.count or 0 if spec.gpu else 0,
        "control": catalogue.CONTROL,
        "paths": catalogue.PATHS,
    }


def profile(block: Mps) -> str:
    """Return the profile that makes login shells clients of the one daemon."""
    file = environment_file(next(iter(group_names(block)), "host"))
    return f"""{HEADER}# Programs of login shells use MPS; the daemon's unit writes the file at each start.
if [ -r {file} ]; then
  set -a
  . {file}
  set +a
fi
"""


def client(block: Mps, name: str) -> str:
    """Return the drop-in that makes a service a client of a daemon, or of a partition of it."""
    daemon, _, number = name.rpartition("-")
    unit = catalogue.UNIT.replace("@", f"@{daemon if block.static_partitions and is_whole(number) else name}")
    return f"""{HEADER}[Unit]
After={unit}
Wants={unit}

[Service]
# The daemon's unit writes it at each start.
EnvironmentFile={environment_file(name)}
"""


def files(spec: HostSpec, block: Mps) -> Iterator[tuple[str, str]]:
    """Yield path and text of each file."""
    yield catalogue.STATE, json.dumps(plain(spec, block), indent=4, sort_keys=True) + "\n"
    yield TMPFILES, f"{HEADER}# Sockets of the default directory are not cleaned away.\nx {catalogue.PIPES['v2']}\n"
    if block.profile:
        yield catalogue.PROFILE, profile(block)
    yield from ((drop_in(service), client(block, name)) for service, name in block.units.items())


def units(ctx: Ctx) -> Iterator[Unit]:
    """Yield the units of the wanted daemons, and those of others, which are to be off. The name of a MIG device's unit
    is known only from its daemon: without a daemon, superfluous units cannot be determined. None if devices cannot have
    these daemons, which mps.daemons reports."""
    state, block = ctx.facts.get(mps.MPS), ctx.fragment
    rows, problem = list_daemons(block, state)
    if problem and state.gpus:
        return
    named: dict[str, Wanted | None] = {row.name: row for row in rows}
    if not state.gpus:
        named = dict.fromkeys(list_names_without_driver(plain(ctx.host, block)))
    elif block.scope == "mig":
        named = {called(target, daemon): target for target, daemon in pairs(ctx)}
    running, waits = {daemon.unit: daemon for daemon in state.daemons}, without_gpu(ctx.facts)
    for name, target in named.items():
        daemon = running.get(unit(name))
        outdated = _explain_restart(daemon, target, block) if daemon and target else ""
        yield Unit(
            name=unit(name),
            enabled=True,
            active=None if waits else True,
            waits=waits,
            outdated=outdated,
            reads=READS[EACH],
            process=catalogue.CONTROL,
        )
    if len(named) == len(rows) if state.gpus else named or block.scope == "none":
        yield from (Unit(name=unit(name), enabled=False, active=False) for name in state.units if name not in named)


def _explain_restart(daemon: mps.Daemon, target: Wanted, block: Mps) -> str:
    """Return the reason to restart a daemon; empty without one."""
    if daemon.protocol != block.protocol:
        return f"of protocol {daemon.protocol}"
    return "for other devices" if daemon.devices != target.devices else ""


def states(ctx: Ctx) -> dict[str, Loaded]:
    """Return the states of the daemons' units in systemd, which does not list one that is neither enabled nor
    loaded."""
    loaded = {unit.name: Loaded("loaded", file="disabled") for unit in units(ctx)}
    for name, (active, on) in ctx.facts.get(mps.MPS).units.items():
        loaded[unit(name)] = Loaded("loaded", active=active, file="enabled" if on else "disabled")
    return loaded


def contents(ctx: Ctx) -> Iterator[File | Absent]:
    """Yield the daemons' unit, its program and the program's input, and the files that configure clients of the
    daemons."""
    made = dict(files(ctx.host, ctx.fragment))
    yield from (File(path, text) for path, text in {**made, **mps_program.list_texts(), UNIT_FILE: UNIT}.items())
    if catalogue.PROFILE not in made:
        yield Absent(catalogue.PROFILE)


def desired(ctx: Ctx) -> Iterator[Resource]:
    """Yield the files, and the daemons' units."""
    yield from contents(ctx)
    yield from units(ctx)


def paths(host: HostSpec, block: Mps) -> Iterator[str]:
    """Yield every path that the role may write."""
    yield from dict(files(host, block))
    yield from (catalogue.PROFILE, UNIT_FILE, *mps_program.list_texts())


def make(ctx: Ctx) -> dict[str, Json]:
    """Return the role's values. `install`: packages. The values of its resources; step mps brings the program along,
    and has the daemons run with `wanted`, the program's input. `coming`: driver or MIG devices change before the
    daemons do, in this run."""
    own = mps_program.list_texts()
    values = role_values((content for content in contents(ctx) if content.path not in own), "files", "units", "absent")
    return {
        "of": "MPS",
        "install": decide(ctx).install,
        **values,
        "absent": values["absent"] + list_left(ctx),
        "tasks": {
            "daemons": {
                "wanted": plain(ctx.host, ctx.fragment),
                "coming": ctx.applies("nvidia_driver") or ctx.applies("mig"),
            }
        },
    }


DESIRED: Desired[Any] = Desired(
    PROBES,
    make,
)
RESOURCES: Resources[Any] = Resources(
    desired,
    paths,
    STATE,
    reads=lambda _host, _block: READS,
    units=lambda host, block: map(unit, list_names_without_driver(plain(host, block))),
    states=states,
    proves={"files": ("profile", "units"), "enabled": ("scope", "groups"), "active": ("scope", "groups", "protocol")},
)
