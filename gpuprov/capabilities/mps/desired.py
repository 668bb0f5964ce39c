"""What the role brings about: MPS's programs, the daemons' unit and configuration, what tells clients of them, and the daemons."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from gpuprov.capabilities.answers import BEFORE, HEADER
from gpuprov.capabilities.at_boot import PATH
from gpuprov.capabilities.base import Context, Desired, Resources
from gpuprov.capabilities.mps.clients import DROP_IN, drop_in, environment_file
from gpuprov.capabilities.mps.decision import PROBES, decide
from gpuprov.capabilities.mps.fragment import Mps, group_names
from gpuprov.catalog import mps as catalogue
from gpuprov.onhost import mps_program
from gpuprov.onhost.files import PYTHON
from gpuprov.probe.gpus import mps
from gpuprov.reading import is_whole
from gpuprov.resources import from_values
from gpuprov.spec.model import HostSpec

Ctx = Context[Mps]
TMPFILES = "/etc/tmpfiles.d/gpuprov-mps.conf"
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


def plain(spec: HostSpec, block: Mps) -> dict[str, Any]:
    """What the program on the host is told: mps.json."""
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
    """What makes login shells clients of the one daemon."""
    file = environment_file(next(iter(group_names(block)), "host"))
    return f"""{HEADER}# Programs of login shells use MPS; the daemon's unit writes the file at each start.
if [ -r {file} ]; then
  set -a
  . {file}
  set +a
fi
"""


def client(block: Mps, name: str) -> str:
    """What makes a service a client of a daemon, or of a partition of it."""
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
    """Path and text of each."""
    yield catalogue.STATE, json.dumps(plain(spec, block), indent=4, sort_keys=True) + "\n"
    yield TMPFILES, f"{HEADER}# Sockets of the default directory are not cleaned away.\nx {catalogue.PIPES['v2']}\n"
    if block.profile:
        yield catalogue.PROFILE, profile(block)
    for unit, name in block.units.items():
        yield drop_in(unit), client(block, name)


def written(ctx: Ctx) -> dict[str, Any]:
    """`files`, `units`: text by path, also the program of the units; `absent`: files of daemons and clients that are no more."""
    made = dict(files(ctx.host, ctx.fragment))
    known = [path for path in ctx.facts.get(mps.MPS).files if path.endswith(f"/{DROP_IN}")]
    return {
        "files": made,
        "absent": sorted({catalogue.PROFILE, *known} - set(made)),
        "units": {f"/etc/systemd/system/{catalogue.UNIT}": UNIT},
    }


def contents(ctx: Ctx) -> dict[str, Any]:
    """What is `written`, and the units' program, which gpuprov_mps brings along."""
    made = written(ctx)
    return {**made, "files": {**made["files"], **mps_program.texts()}}


def paths(host: HostSpec, block: Mps) -> Iterator[str]:
    """Every path that the role may write."""
    yield from dict(files(host, block))
    yield from (catalogue.PROFILE, f"/etc/systemd/system/{catalogue.UNIT}", *mps_program.texts())


def make(ctx: Ctx) -> dict[str, Any]:
    """`install`: packages. What is `written`. `wanted`: what the program is told. `coming`: driver or MIG devices change before the
    daemons do, in this run."""
    return {
        "of": "MPS",
        "install": decide(ctx).install,
        **written(ctx),
        "wanted": plain(ctx.host, ctx.fragment),
        "coming": ctx.applies("nvidia_driver") or ctx.applies("mig"),
    }


def facts(_spec: HostSpec) -> object:
    """The packages that have the programs."""
    return msgspec.to_builtins(catalogue.mps_file().packages)


DESIRED: Desired[Any] = Desired(PROBES, make, reads=("gpuprov_gpu",), facts=facts)
RESOURCES: Resources[Any] = Resources(from_values(contents), paths, (mps.MPS,))
