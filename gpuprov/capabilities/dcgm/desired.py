"""What the role brings about: DCGM's packages, the settings of its units, and its daemons alive with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpuprov.capabilities.answers import HEADER
from gpuprov.capabilities.base import Context, Desired, Resources
from gpuprov.capabilities.dcgm.decision import PROBES, Decision, decided
from gpuprov.capabilities.dcgm.fragment import Dcgm, installed, mine
from gpuprov.catalog import dcgm as catalogue
from gpuprov.catalog import gpus
from gpuprov.resources import from_values
from gpuprov.shared.followers import LIBRARY_FILES

ENGINE, EXPORTER = catalogue.drop_in(catalogue.UNIT), catalogue.drop_in(catalogue.EXPORTER_UNIT)
WAY_OUT = "journalctl -u {}, and /var/log/nvidia-dcgm and /var/log/dcgm-exporter.log, on the host"
Ctx = Context[Dcgm]


def settings(block: Dcgm) -> dict[str, str]:
    """gpuprov's settings of the units, by path: where the host engine listens, and how the exporter is run."""
    files: dict[str, str] = {}
    if block.listen != catalogue.LISTEN:
        start = f"{catalogue.COMMAND} {catalogue.arguments(block.listen)}"
        files[ENGINE] = f"{HEADER}[Service]\nExecStart=\nExecStart={start}\n"
    if block.exporter:
        files[EXPORTER] = HEADER + _exporter(block)
    return files


def _exporter(block: Dcgm) -> str:
    start = f"ExecStart=\nExecStart={catalogue.EXPORTER_PROGRAM} -f {block.exporter_counters}\n"
    return f"""[Unit]
# Its connection ends with the host engine that it was made to.
PartOf={catalogue.UNIT}

[Service]
# One host engine per host: without its address the exporter would start another in itself (NVIDIA/DCGM#108).
Environment=DCGM_EXPORTER_LISTEN=:{block.exporter_port}
Environment=DCGM_REMOTE_HOSTENGINE_INFO={catalogue.reached_at(block.listen)}
{start if block.exporter_counters != catalogue.COUNTERS else ""}\
# The host engine may not listen yet when the exporter starts, which then ends with a failure.
Restart=on-failure
RestartSec=5
"""


def daemons(ctx: Ctx) -> Iterator[dict[str, Any]]:
    """As the module gpuprov_unit takes them, the host engine first."""
    yield {
        "name": catalogue.UNIT,
        "files": [catalogue.PROGRAM, _folder(ENGINE), *LIBRARY_FILES],
        "ask": ["dcgmi", "discovery", "--host", catalogue.reached_at(ctx.fragment.listen), "-l"],
        "way_out": WAY_OUT.format(catalogue.UNIT),
    }
    if ctx.fragment.exporter:
        yield {
            "name": catalogue.EXPORTER_UNIT,
            "files": [catalogue.EXPORTER_PROGRAM, _folder(EXPORTER)],
            "ask": [],
            "way_out": WAY_OUT.format(catalogue.EXPORTER_UNIT),
        }


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def packages(ctx: Ctx, decision: Decision) -> dict[str, Any]:
    """The transaction, and all of DCGM that is held or released after it."""
    there = installed(ctx.facts)
    moves = any(there.get(name) != version for name, version in decision.packages.items())
    every = [name for name in dict.fromkeys([*decision.packages, *mine(ctx.facts)]) if name not in decision.replaced]
    return {
        "of": "DCGM",
        "hint": "see what apt-get -s install, or dnf install --assumeno, says of these packages on the host",
        "install": [f"{name}={version}" for name, version in decision.packages.items()] if moves else [],
        "remove": list(decision.replaced),
        "hold": every if ctx.fragment.hold else [],
        "release": [] if ctx.fragment.hold else every,
    }


def waiting(ctx: Ctx, decision: Decision) -> dict[str, str]:
    """What cannot be resolved before nvidia_driver has decided, or has added a package source, as the judge takes it."""
    told = f"DCGM {ctx.fragment.version} is {decision.later}"
    return {"told": told, "problem": f"{decision.problem}. Fix: {decision.hint}"} if decision.later else {}


def written(ctx: Ctx) -> dict[str, Any]:
    """`files`: text by path; `absent`: files that should not be there."""
    files = settings(ctx.fragment)
    return {"files": files, "absent": [] if ENGINE in files else [ENGINE]}


def make(ctx: Ctx) -> dict[str, Any]:
    """`install`, `remove`, `hold`, `release`: packages. What is `written`. `daemons`:
    what runs, in this order. `old_units`: the deprecated one of line 3, which conflicts with the host engine's. `later`: what the
    packages wait for; none are named until then."""
    decision = decided(ctx)
    return {
        "later": waiting(ctx, decision),
        **packages(ctx, Decision() if decision.problem else decision),
        **written(ctx),
        "daemons": list(daemons(ctx)),
        "old_units": [catalogue.OLD_UNIT] if decision.line == "3" else [],
    }


RESOURCES = Resources(from_values(written), lambda _host, _block: (ENGINE, EXPORTER))
DESIRED = Desired(
    PROBES,
    make,
    reads=("nvidia_driver_version", "nvidia_driver_source", "nvidia_driver_repository"),
    facts=lambda host: gpus.those(host.gpu.model if host.gpu else ""),
)
