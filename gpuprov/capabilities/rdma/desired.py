"""What the role brings about: packages, what sets something at boot, limits of services, opensm, /etc/nccl.conf."""

from __future__ import annotations

from typing import Any

from gpuprov.capabilities.base import Context, Desired
from gpuprov.capabilities.rdma import infiniband, limits, soft
from gpuprov.capabilities.rdma.erdma import desired as erdma
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.capabilities.rdma.nccl import desired as nccl
from gpuprov.capabilities.rdma.preflight import wanted_packages
from gpuprov.capabilities.rdma.roce import desired as roce
from gpuprov.catalog import erdma as erdma_catalogue
from gpuprov.catalog import rdma as catalogue
from gpuprov.probe import system
from gpuprov.probe.erdma import ERDMA
from gpuprov.probe.nccl import NCCL
from gpuprov.probe.ofed import OFED
from gpuprov.probe.rdma import DEVICES
from gpuprov.probe.rdma_host import HOST, PACKAGES
from gpuprov.probe.roce import ROCE
from gpuprov.spec.model import HostSpec

Ctx = Context[Rdma]
PARTS = (soft, roce, erdma)
"""Of these at most one is asked for: each belongs to a fabric."""


def make(ctx: Ctx) -> dict[str, Any]:
    """`install`: packages of the inbox stack. `files`: text by path, `absent`: files that should not be there, `program`: one that
    the unit at boot runs. `unit`: what sets devices at boot, and has to set them now; `off`: units of other fabrics. `initramfs`:
    images may be older than what is in modprobe.d. `opensm`, `limits`, `nccl`: see there."""
    parts = [(part.at_boot(ctx), part.left(ctx)) for part in PARTS]
    asked = next((one for one, _ in parts if one), None)
    gone = [left for one, left in parts if not one]
    files = {**(asked.files if asked else {}), **infiniband.files(ctx)}
    absent = [path for left in gone for path in left.files]
    absent += [path for path in (erdma_catalogue.OPTIONS,) if path not in (*files, *absent)]
    there = ctx.facts.get(PACKAGES)
    return {
        "install": [name for name in wanted_packages(ctx) if name not in there],
        "files": files,
        "absent": absent,
        "program": asked.program if asked else None,
        "unit": asked,
        "off": [left.unit for left in gone if left.there],
        "initramfs": erdma.outruns_images(ctx),
        "opensm": infiniband.wanted(ctx),
        "limits": limits.wanted(ctx),
        "nccl": nccl.wanted(ctx),
    }


def facts(_host: HostSpec) -> object:
    """What of the catalogue all of it is decided by."""
    known, erdma_known = catalogue.rdma_file(), erdma_catalogue.erdma_file()
    return {"packages": known.packages, "daemons": known.daemons, "mtu": erdma_known.mtu}


DESIRED = Desired((DEVICES, HOST, PACKAGES, ROCE, OFED, ERDMA, NCCL, system.OS_RELEASE), make, facts=facts)
