"""What the role brings about: the settings, the unit that applies them at each boot, and what of them the GPUs lack now."""

from __future__ import annotations

from typing import Any

from gpuprov.capabilities.answers import BEFORE, HEADER
from gpuprov.capabilities.at_boot import ABOVE, COMMON, command, files, unit
from gpuprov.capabilities.base import Context, Desired, Resources
from gpuprov.capabilities.cgpu.checks import differences
from gpuprov.capabilities.cgpu.fragment import Cgpu, lines
from gpuprov.catalog import cgpu as catalogue
from gpuprov.probe.gpus.cgpu import CGPU
from gpuprov.resources import from_values

Ctx = Context[Cgpu]
MODULES = (*COMMON, "cgpu")
OLD = f"{ABOVE}/cgpu/cgpu.sh"
UNIT_FILE = f"/etc/systemd/system/{catalogue.UNIT}"
SITE, TIMEOUT = "cgpu_module_timeout", 30
"""What a site may set: seconds that the boot unit waits for /proc/cgpu_km, where something else loads cGPU."""
UNIT = unit(
    f"""
Description=Settings of cGPU, before anything runs containers
After=systemd-modules-load.service nvidia-persistenced.service gpuprov-persistence.service nvidia-fabricmanager.service
{BEFORE}""",
    f"ExecStart={command('cgpu', 'cgpu', 'apply')} {{seconds}}\nTimeoutStartSec={{limit}}",
)


def config(block: Cgpu) -> str:
    """cgpu.conf."""
    told = f"# GPU NODE VALUE: what {catalogue.UNIT} writes to {catalogue.ROOT}/GPU/NODE; * is every GPU, a later line wins."
    return HEADER + "\n".join((told, *lines(block), ""))


def differs(ctx: Ctx) -> str:
    """What the GPUs do not have; empty if nothing."""
    if not ctx.facts.get(CGPU).version:
        return "cGPU is not loaded"
    return ", ".join(f"GPU {one.gpu.index} {one.node}: {one.found} -> {one.value}" for one in differences(ctx))


def written(ctx: Ctx) -> dict[str, Any]:
    """`files`, `units`: text by path. `program`: by path the role's files that the unit runs; `absent`: what it ran before."""
    seconds = int(str(ctx.host.site.get(SITE, TIMEOUT)))
    return {
        "program": files("cgpu", MODULES),
        "files": {catalogue.CONFIG: config(ctx.fragment)},
        "units": {UNIT_FILE: UNIT.format(seconds=seconds, limit=seconds + 90)},
        "absent": [OLD],
    }


def make(ctx: Ctx) -> dict[str, Any]:
    """What is `written`. `differs`: what the unit has to set; `fix`: what to do where it cannot."""
    loaded = bool(ctx.facts.get(CGPU).version)
    return {
        **written(ctx),
        "unit": catalogue.UNIT,
        "differs": differs(ctx),
        "fix": "stop the containers that it names, and apply again"
        if loaded
        else "load cGPU, or have Alibaba's installer load it at boot, and apply again",
    }


DESIRED: Desired[Any] = Desired((CGPU,), make)
RESOURCES: Resources[Any] = Resources(
    from_values(written), lambda _host, _block: (catalogue.CONFIG, UNIT_FILE, OLD, *files("cgpu", MODULES))
)
