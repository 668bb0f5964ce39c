"""Desired state of the role: the settings for the module, those that are applied before a reboot, and the file for each
boot."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from gpuprov.capabilities.answers import BEFORE
from gpuprov.capabilities.at_boot import unit
from gpuprov.capabilities.base import Desired, Resources
from gpuprov.capabilities.gpu_settings.fragment import FIELDS, config
from gpuprov.capabilities.gpu_settings.host import READABLE, Ctx, unreadable
from gpuprov.facts.probes.gpus.gpu_settings import CONFIG, FOLDER, UNIT
from gpuprov.host_code.files import PYTHON
from gpuprov.host_code.gpu_settings import compare, selection
from gpuprov.resources import Absent, File, Program, Resource, Unit, role_values

# Files of gpuprov/host_code/gpu_settings, as a rendered project has them beside the rest of the role.
PROGRAM = (
    "__init__.py",
    *(f"{name}.py" for name in ("__main__", "act", "card", "compare", "limits", "nvml", "plan", "selection")),
)
UNIT_FILE = f"/etc/systemd/system/{UNIT}"
# Every path that the role may write.
PATHS = (UNIT_FILE, CONFIG, *(f"{FOLDER}/{name}" for name in PROGRAM))
TEXT = unit(
    f"""
Description=Power limits, clocks, compute modes and ECC modes of the NVIDIA GPUs
ConditionPathExists={CONFIG}
After=systemd-modules-load.service nvidia-persistenced.service gpuprov-persistence.service nvidia-fabricmanager.service
After=gpuprov-mig.service
{BEFORE}Before=nvidia-dcgm.service dcgm.service
""",
    f"ExecStart={PYTHON} -B -m gpu_settings --wait 120\nTimeoutStartSec=300",
    top="""# A boot, and a reload of the driver, undo power limits, clocks and compute modes:
# https://docs.nvidia.com/deploy/nvml-api/api/group__nvmlDeviceCommands.html
""",
)


def only_ecc(config_values: selection.Config) -> selection.Config:
    """Return the settings to apply before the one reboot of an apply, which brings them into force."""

    def ecc(settings: compare.Settings) -> compare.Settings:
        return {"ecc": settings["ecc"]} if "ecc" in settings else {}

    entries: list[selection.Entry] = [
        {**entry, "settings": ecc(entry["settings"])} for entry in config_values["per_gpu"]
    ]
    return {"all": ecc(config_values["all"]), "per_gpu": [entry for entry in entries if entry["settings"]]}


def desired(ctx: Ctx) -> Iterator[Resource]:
    """Yield the unit, the program that it starts, and the settings that the program reads; nothing if no setting is
    requested."""
    config_values = config(ctx.fragment)
    if not (config_values["all"] or config_values["per_gpu"]):
        yield from map(Absent, PATHS)
        yield Unit(name=UNIT, enabled=False, active=False)
        return
    yield File(UNIT_FILE, TEXT)
    yield File(CONFIG, json.dumps(config_values, indent=4) + "\n")
    yield from (Program(f"{FOLDER}/{name}", name) for name in PROGRAM)
    answer = unreadable(ctx)
    waits = answer.found if answer and answer.status == "skip" else ""
    yield Unit(name=UNIT, enabled=True, active=None if waits else True, waits=waits)


def make(ctx: Ctx) -> dict[str, Any]:
    """Return the role's values. `boot`: the values of its resources, but for `kept`, the settings of each boot."""
    config_values = config(ctx.fragment)
    values = role_values(desired(ctx), "files", "units", "program", "absent", "on", "off", "run")
    kept = {"files": values.pop("files")}
    run = [{**entry, "fix": f"journalctl -u {entry['name']} -n 20, on the host"} for entry in values.pop("run")]
    own = {"all": config_values["all"], "per_gpu": config_values["per_gpu"]}
    return {"boot": values, "kept": kept, "tasks": {"ecc": only_ecc(config_values), "settings": own, "unit": run}}


# Fields that the unit sets at each boot.
KEPT = (*FIELDS, "per_gpu")
RESOURCES: Resources[Any] = Resources(
    desired,
    lambda _host, _block: PATHS,
    READABLE,
    units=lambda _host, _block: (UNIT,),
    proves={"files": KEPT, "enabled": KEPT},
)
DESIRED: Desired[Any] = Desired(READABLE, make)
