"""What the role brings about: packages, what sets something at boot, limits of services, opensm, /etc/nccl.conf."""

from __future__ import annotations

from typing import Any

from gpuprov.capabilities.at_boot import files as files_of
from gpuprov.capabilities.base import Context, Desired, Resources
from gpuprov.capabilities.rdma import at_boot, infiniband, limits, soft
from gpuprov.capabilities.rdma.efa import desired as efa
from gpuprov.capabilities.rdma.erdma import decision as erdma_decision
from gpuprov.capabilities.rdma.erdma import desired as erdma
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.capabilities.rdma.nccl import desired as nccl
from gpuprov.capabilities.rdma.ofed import decision as ofed_decision
from gpuprov.capabilities.rdma.ofed import desired as ofed
from gpuprov.capabilities.rdma.preflight import wanted_packages
from gpuprov.capabilities.rdma.roce import desired as roce
from gpuprov.catalog import rdma as catalogue
from gpuprov.catalog.rdma import efa as efa_catalogue
from gpuprov.catalog.rdma import erdma as erdma_catalogue
from gpuprov.catalog.rdma import ofed as ofed_catalogue
from gpuprov.catalog.rdma import roce as roce_catalogue
from gpuprov.catalog.rdma.nccl import CONFIG
from gpuprov.probe.host import system
from gpuprov.probe.rdma import DEVICES
from gpuprov.probe.rdma.efa import EFA
from gpuprov.probe.rdma.nccl import NCCL
from gpuprov.probe.rdma.roce import ROCE
from gpuprov.probe.rdma.surroundings import HOST, PACKAGES
from gpuprov.resources import from_values
from gpuprov.resources.packages import packages_of
from gpuprov.spec.model import HostSpec

Ctx = Context[Rdma]
PARTS = (soft, roce, erdma)
"""Of these at most one is asked for: each belongs to a fabric."""


def asked_parts(ctx: Ctx) -> tuple[at_boot.AtBoot | None, list[at_boot.Left]]:
    """What sets devices at boot, and what units of other fabrics may have left."""
    parts = [(part.at_boot(ctx), part.left(ctx)) for part in PARTS]
    return next((one for one, _ in parts if one), None), [left for one, left in parts if not one]


def written(ctx: Ctx) -> dict[str, Any]:
    """`files`, `units`: text by path, `absent`: files that should not be there, `program`: by path the role's files."""
    asked, gone = asked_parts(ctx)
    files = {**(asked.files if asked else {}), **infiniband.files(ctx)}
    program = files_of(at_boot.RDMA, asked.modules if asked else ())
    absent = [path for left in gone for path in left.files]
    absent += [path for path in (erdma_catalogue.OPTIONS, *at_boot.PLACES) if path not in (*files, *program, *absent)]
    units = {f"{at_boot.UNITS}/{asked.unit}": asked.text} if asked else {}
    return {"files": files, "absent": absent, "program": program, "units": units}


def contents(ctx: Ctx) -> dict[str, Any]:
    """What is `written`, and what other stages write: limits of services, nccl.conf."""
    made, own = written(ctx), nccl.wanted(ctx)
    conf = {own["path"]: own["text"]} if own["text"] else {}
    return {**made, "files": {**made["files"], **limits.wanted(ctx)["files"], **conf}}


def paths(_host: HostSpec, _block: Rdma) -> tuple[str, ...]:
    """Every path that the role may write."""
    units = (erdma_catalogue.UNIT, roce_catalogue.UNIT, catalogue.SOFT_UNIT)
    configs = (erdma_catalogue.CONFIG, erdma_catalogue.OPTIONS, roce_catalogue.CONFIG, catalogue.SOFT_CONFIG)
    return (
        *(f"{at_boot.UNITS}/{unit}" for unit in units),
        *configs,
        infiniband.ORDER,
        CONFIG,
        *at_boot.PLACES,
        *limits.PATHS,
    )


def make(ctx: Ctx) -> dict[str, Any]:
    """`later`: what waits for a package source. `fetch`: files that the spec names, as gpuprov_fetch takes them. `install`: packages,
    `of` what they are, `hint` the way out where they cannot be installed. What is `written`.
    `unit`: what sets devices at boot, and has to set them `now`; `off`: of other fabrics. `initramfs`: images may be older than what
    is in modprobe.d. `ofed`, `erdma`, `efa` (loaded from disk: `efa_loads`), `opensm`, `limits`, `nccl`: see there."""
    asked, gone = asked_parts(ctx)
    return {
        "later": ofed.waiting(ctx, ofed.decided(ctx)),
        "fetch": [found for part in (ofed, erdma, efa) if (found := part.fetch(ctx))],
        **packages(ctx),
        "ofed": ofed.wanted(ctx, ofed.decided(ctx)),
        "erdma": erdma.software(ctx, erdma_decision.decide(ctx.fragment, ctx.facts)),
        "efa": efa.software(ctx),
        "efa_loads": ctx.fragment.fabric == "efa",
        **written(ctx),
        "unit": asked,
        "now": "observed" if ofed.waits(ctx) else "ran",
        "off": [left.unit for left in gone if left.there],
        "initramfs": erdma.outruns_images(ctx),
        "opensm": infiniband.wanted(ctx),
        "limits": limits.wanted(ctx),
        "nccl": nccl.wanted(ctx),
    }


def packages(ctx: Ctx) -> dict[str, Any]:
    """The transaction of the stack that is asked for."""
    if ctx.fragment.own_stack == "doca-ofed":
        hint = "remove what it names, or have it from DOCA's repository alone"
        told = f"doca-ofed depends on its own openmpi, ucx and rdma-core in exact versions: {hint}"
        return {"of": "DOCA-OFED", "install": list(ofed.decided(ctx).install), "hint": told}
    if ctx.fragment.own_stack == "erdma-vendor":
        hint = "on EL DKMS comes from EPEL; a kernel whose headers no repository has any more is removed"
        install = erdma_decision.decide(ctx.fragment, ctx.facts).install
        return {"of": "the eRDMA driver", "install": list(install), "hint": f"correct what it says; {hint}"}
    there = ctx.facts.get(PACKAGES)
    told = (
        "where a package is unknown, add the distribution's own repositories, or a mirror of them; packages of DOCA-OFED and the "
        "distribution's do not go together"
    )
    return {"of": "RDMA", "install": [name for name in wanted_packages(ctx) if name not in there], "hint": told}


def facts(_host: HostSpec) -> object:
    """What of the catalogue all of it is decided by."""
    known, erdma_known, doca = catalogue.rdma_file(), erdma_catalogue.erdma_file(), ofed_catalogue.ofed_file()
    return {
        "packages": known.packages,
        "daemons": known.daemons,
        "erdma": (erdma_known.installers, erdma_known.address, erdma_known.build, erdma_known.mtu),
        "efa": (efa_catalogue.efa_file().installers, efa_catalogue.efa_file().address),
        "ofed": (doca.packages, doca.modules, doca.unbuildable),
    }


PROBES = (
    DEVICES,
    HOST,
    PACKAGES,
    ROCE,
    EFA,
    NCCL,
    limits.DROP_INS,
    system.CONTAINER,
    *ofed_decision.PROBES,
    *erdma_decision.PROBES,
)
DESIRED = Desired(
    tuple(dict.fromkeys(PROBES)),
    make,
    facts=facts,
    packages=lambda values: (packages_of(values, **{name: values["ofed"][name] for name in ("hold", "release")}),),
)
RESOURCES = Resources(
    from_values(contents),
    paths,
    tuple(dict.fromkeys((DEVICES, HOST, ROCE, NCCL, limits.DROP_INS, *erdma_decision.PROBES))),
)
