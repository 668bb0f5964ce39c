"""What the role brings about: the settings for the module, the part of them that goes before a reboot, and the file for each boot."""

from __future__ import annotations

import json
from typing import Any

from gpuprov.capabilities.base import Desired
from gpuprov.capabilities.gpu_settings.boot import asks_anything
from gpuprov.capabilities.gpu_settings.fragment import config
from gpuprov.capabilities.gpu_settings.host import Ctx


def only_ecc(wanted: dict[str, Any]) -> dict[str, Any]:
    """What has to be set before the one reboot of an apply, which brings it into force."""

    def ecc(settings: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in settings.items() if key == "ecc"}

    entries = [{**entry, "settings": ecc(entry["settings"])} for entry in wanted["per_gpu"]]
    return {"all": ecc(wanted["all"]), "per_gpu": [entry for entry in entries if entry["settings"]]}


def make(ctx: Ctx) -> dict[str, Any]:
    """`all`, `per_gpu`: as the module takes them; `ecc`: likewise, before a reboot. `config`: the file's text, or nothing."""
    wanted = config(ctx.fragment)
    text = json.dumps(wanted, indent=4) + "\n" if asks_anything(ctx.fragment) else ""
    return {"all": wanted["all"], "per_gpu": wanted["per_gpu"], "ecc": only_ecc(wanted), "config": text}


DESIRED: Desired[Any] = Desired((), make)
