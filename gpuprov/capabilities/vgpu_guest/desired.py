"""Desired state of the role: gridd.conf, the one token, nvidia-gridd with both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpuprov.capabilities.base import Context, Desired, Resources
from gpuprov.capabilities.vgpu_guest.fragment import SETTING_FIELDS, VgpuGuest, differences, wanted_settings
from gpuprov.capabilities.vgpu_guest.now import find_complaint
from gpuprov.catalog import vgpu as catalogue
from gpuprov.probe.gpus.vgpu import GRIDD
from gpuprov.resources import File, Resource, Unit, role_values

Ctx = Context[VgpuGuest]
# As earlier versions wrote it: another text would have every running daemon restarted.
HEADER = "#\n# Ansible managed\n#\n"
# https://github.com/Azure/aks-gpu/pull/90: some installers of the driver bring the program without a unit
NO_UNIT = "install the guest driver's packages; its .run brings a unit only where systemd is found while it installs"


def gridd_conf(block: VgpuGuest) -> str:
    """Return the text of gridd.conf."""
    return HEADER + "".join(f"{key}={value}\n" for key, value in wanted_settings(block).items())


def desired(ctx: Ctx) -> Iterator[Resource]:
    """Yield gridd.conf, and the daemon with it and with the token."""
    gridd = ctx.facts.get(GRIDD)
    yield File(catalogue.CONFIG, gridd_conf(ctx.fragment), differs="; ".join(differences(ctx.fragment, gridd.settings)))
    newest = max([gridd.configured, *(one.changed for one in gridd.tokens)])
    outdated = "older than its configuration or token" if 0 < gridd.started < newest else ""
    yield Unit(
        name=catalogue.UNIT,
        enabled=True,
        active=True,
        outdated=outdated,
        said=find_complaint(gridd),
        missing=NO_UNIT,
    )


def make(ctx: Ctx) -> dict[str, Any]:
    """Return the values of the role. `token`: its `folder` (empty: none is needed), `source` on the controller (empty: it is on the
    host already), its destination `dest`, its `mode`; `own`: tokens of the host's that get this mode. `absent`: other tokens, which
    the daemon might take. `unit`, and `read`: files that a running daemon has read."""
    block = ctx.fragment
    by_token = block.licensing == "token"
    folder = block.token_directory if by_token else ""
    there = [one.path for one in ctx.facts.get(GRIDD).tokens if by_token and one.path.startswith(f"{folder}/")]
    values = role_values(desired(ctx), "files", "on")
    unit = "".join(values.pop("on"))
    dest = f"{folder}/{block.token_file.rpartition('/')[2]}" if by_token and block.token_file else ""
    return {
        **values,
        "token": {
            "folder": folder,
            "source": block.token_file if by_token else "",
            "dest": dest,
            "mode": block.token_mode,
            "own": [] if dest else there,
        },
        "absent": [path for path in there if dest and path != dest],
        "unit": unit,
        "read": [catalogue.CONFIG, *([folder] if folder else [])],
    }


RESOURCES: Resources[VgpuGuest] = Resources(
    desired,
    lambda _host, _block: (catalogue.CONFIG,),
    (GRIDD,),
    units=lambda _host, _block: (catalogue.UNIT,),
    proves={"files": ("licensing", *SETTING_FIELDS)},
)
DESIRED: Desired[VgpuGuest] = Desired(
    (GRIDD,),
    make,
)
