"""What the role brings about: gridd.conf, the one token, nvidia-gridd with both."""

from __future__ import annotations

from typing import Any

from gpuprov.capabilities.base import Context, Desired, Resources
from gpuprov.capabilities.vgpu_guest.fragment import VgpuGuest, wanted_settings
from gpuprov.catalog import vgpu as catalogue
from gpuprov.probe.gpus.vgpu import GRIDD
from gpuprov.resources import from_values

Ctx = Context[VgpuGuest]
# As earlier versions wrote it: another text would have every running daemon restarted.
HEADER = "#\n# Ansible managed\n#\n"


def gridd_conf(block: VgpuGuest) -> str:
    """The text of gridd.conf."""
    return HEADER + "".join(f"{key}={value}\n" for key, value in wanted_settings(block).items())


def written(ctx: Ctx) -> dict[str, Any]:
    """`files`: text by path."""
    return {"files": {catalogue.CONFIG: gridd_conf(ctx.fragment)}}


def make(ctx: Ctx) -> dict[str, Any]:
    """`files`: text by path. `token`: `folder` that it lies in (empty: none is needed), `source` on the controller (empty: it is on
    the host already), its place `dest`, its `mode`; `own`: tokens of the host's that get this mode. `absent`: other tokens, of which
    the daemon might take one. `unit`, and `read`: what a running daemon has read."""
    block = ctx.fragment
    by_token = block.licensing == "token"
    folder = block.token_directory if by_token else ""
    there = [one.path for one in ctx.facts.get(GRIDD).tokens if by_token and one.path.startswith(f"{folder}/")]
    dest = f"{folder}/{block.token_file.rpartition('/')[2]}" if by_token and block.token_file else ""
    return {
        **written(ctx),
        "token": {
            "folder": folder,
            "source": block.token_file if by_token else "",
            "dest": dest,
            "mode": block.token_mode,
            "own": [] if dest else there,
        },
        "absent": [path for path in there if dest and path != dest],
        "unit": catalogue.UNIT,
        "read": [catalogue.CONFIG, *([folder] if folder else [])],
    }


RESOURCES: Resources[VgpuGuest] = Resources(from_values(written), lambda _host, _block: (catalogue.CONFIG,))
DESIRED: Desired[VgpuGuest] = Desired((GRIDD,), make, facts=lambda _host: catalogue.vgpu_file().settings)
