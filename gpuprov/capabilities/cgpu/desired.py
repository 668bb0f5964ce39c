"""Desired state of the role: the settings, the unit that applies them at each boot, and the GPUs' current
differences."""

from collections.abc import Iterator
from typing import Any

from gpuprov.capabilities.answers import APPLY, BEFORE, HEADER
from gpuprov.capabilities.at_boot import ABOVE, COMMON, command, files, unit
from gpuprov.capabilities.base import Context, Desired, Resources
from gpuprov.capabilities.cgpu.checks import FIELDS, differences
from gpuprov.capabilities.cgpu.fragment import Cgpu, lines
from gpuprov.catalog import cgpu as catalogue
from gpuprov.facts.probes.gpus.cgpu import CGPU
from gpuprov.host_code.json_members import Json
from gpuprov.resources import Absent, File, Program, Resource, Unit, role_values

Ctx = Context[Cgpu]
MODULES = (*COMMON, "cgpu")
PROGRAM = files("cgpu", MODULES)
OLD = f"{ABOVE}/cgpu/cgpu.sh"
UNIT_FILE = f"/etc/systemd/system/{catalogue.UNIT}"
# A setting of a site: seconds that the boot unit waits for /proc/cgpu_km, if something else loads cGPU.
SITE, TIMEOUT = "cgpu_module_timeout", 30
UNIT = unit(
    f"""
Description=Settings of cGPU, before anything runs containers
After=systemd-modules-load.service nvidia-persistenced.service gpuprov-persistence.service nvidia-fabricmanager.service
{BEFORE}""",
    f"ExecStart={command('cgpu', 'cgpu', 'apply')} {{seconds}}\nTimeoutStartSec={{limit}}",
)


def config(block: Cgpu) -> str:
    """Return the text of cgpu.conf."""
    legend = (
        f"# GPU NODE VALUE: what {catalogue.UNIT} writes to {catalogue.ROOT}/GPU/NODE; * is every GPU, a later "
        "line wins."
    )
    return HEADER + "\n".join((legend, *lines(block), ""))


def differs(ctx: Ctx) -> str:
    """Return the settings that the GPUs do not have; empty if they have all."""
    if not ctx.facts.get(CGPU).version:
        return "cGPU is not loaded"
    return ", ".join(
        f"GPU {difference.gpu.index} {difference.node}: {difference.actual} -> {difference.value}"
        for difference in differences(ctx)
    )


def desired(ctx: Ctx) -> Iterator[Resource]:
    """Yield the settings, the unit that applies them at each boot with its program, and the removal of an earlier
    gpuprov's files."""
    seconds = int(str(ctx.host.site.get(SITE, TIMEOUT)))
    yield from (Program(path, name) for path, name in PROGRAM.items())
    yield File(catalogue.CONFIG, config(ctx.fragment))
    yield File(UNIT_FILE, UNIT.format(seconds=seconds, limit=seconds + 90))
    yield Absent(OLD)
    loaded = bool(ctx.facts.get(CGPU).version)
    fix = "stop the containers that it names" if loaded else "load cGPU, or have Alibaba's installer load it at boot"
    yield Unit(name=catalogue.UNIT, enabled=True, active=True, fix=f"{fix}; then {APPLY}")


def make(ctx: Ctx) -> dict[str, Json]:
    """Return the values of the role: those of the resources, and how the unit is run."""
    unit = next(resource for resource in desired(ctx) if isinstance(resource, Unit))
    values = role_values(desired(ctx), "program", "files", "units", "absent", "on")
    del values["on"]
    own = {"name": unit.name, "state": "ran", "enabled": True, "program": "cgpu"}
    return {**values, "tasks": {"unit": {**own, "differs": differs(ctx), "fix": unit.fix}}}


DESIRED: Desired[Any] = Desired((CGPU,), make)
RESOURCES: Resources[Any] = Resources(
    desired,
    lambda _host, _block: (catalogue.CONFIG, UNIT_FILE, OLD, *PROGRAM),
    (CGPU,),
    units=lambda _host, _block: (catalogue.UNIT,),
    proves=dict.fromkeys(("files", "enabled", "active"), FIELDS),
)
