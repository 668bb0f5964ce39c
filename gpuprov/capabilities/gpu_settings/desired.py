"""What the role brings about: the settings for the module, the part of them that goes before a reboot, and the file for each boot."""

from __future__ import annotations

import json
from typing import Any

from gpuprov.capabilities.answers import BEFORE
from gpuprov.capabilities.at_boot import unit
from gpuprov.capabilities.base import Desired, Resources
from gpuprov.capabilities.gpu_settings.boot import asks_anything
from gpuprov.capabilities.gpu_settings.fragment import config
from gpuprov.capabilities.gpu_settings.host import Ctx
from gpuprov.onhost.files import PYTHON
from gpuprov.probe.gpus.gpu_settings import CONFIG, FOLDER, UNIT
from gpuprov.resources import from_values

PROGRAM = ("__init__.py", *(f"{name}.py" for name in ("__main__", "act", "card", "nvml", "plan", "wanted")))
"""As a rendered project has it beside the rest of the role: gpuprov/onhost/gpu_settings."""
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


def only_ecc(wanted: dict[str, Any]) -> dict[str, Any]:
    """What has to be set before the one reboot of an apply, which brings it into force."""

    def ecc(settings: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in settings.items() if key == "ecc"}

    entries = [{**entry, "settings": ecc(entry["settings"])} for entry in wanted["per_gpu"]]
    return {"all": ecc(wanted["all"]), "per_gpu": [entry for entry in entries if entry["settings"]]}


def written(ctx: Ctx) -> dict[str, Any]:
    """`units` and `files`, text by path, `program`, the role's files by path; nothing where no setting is asked for."""
    if not asks_anything(ctx.fragment):
        return {"units": {}, "program": {}, "files": {}}
    return {
        "units": {f"/etc/systemd/system/{UNIT}": TEXT},
        "program": {f"{FOLDER}/{name}": name for name in PROGRAM},
        "files": {CONFIG: json.dumps(config(ctx.fragment), indent=4) + "\n"},
    }


def make(ctx: Ctx) -> dict[str, Any]:
    """`all`, `per_gpu`: as the module takes them; `ecc`: likewise, before a reboot. Of each boot, nothing where nothing is asked for:
    `units` and `config`, text by path, `program`, the role's files by path; the unit, `enabled` or `disabled`."""
    wanted, asks, brought = config(ctx.fragment), asks_anything(ctx.fragment), written(ctx)
    return {
        "all": wanted["all"],
        "per_gpu": wanted["per_gpu"],
        "ecc": only_ecc(wanted),
        "units": brought["units"],
        "program": brought["program"],
        "config": brought["files"],
        "enabled": [UNIT] if asks else [],
        "disabled": [] if asks else [UNIT],
    }


DESIRED: Desired[Any] = Desired((), make)
RESOURCES: Resources[Any] = Resources(
    from_values(written),
    lambda _host, _block: (f"/etc/systemd/system/{UNIT}", CONFIG, *(f"{FOLDER}/{name}" for name in PROGRAM)),
)
