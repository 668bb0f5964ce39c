"""Desired state of the role: packages, settings at boot, limits of services, opensm, /etc/nccl.conf."""

from collections.abc import Iterator
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
from gpuprov.capabilities.rdma.tasks import handed
from gpuprov.catalog.rdma import OPENSM_UNIT
from gpuprov.catalog.rdma import ofed as ofed_catalogue
from gpuprov.catalog.rdma.nccl import CONFIG
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.rdma import DEVICES
from gpuprov.facts.probes.rdma.efa import EFA
from gpuprov.facts.probes.rdma.nccl import NCCL
from gpuprov.facts.probes.rdma.ofed import OFED
from gpuprov.facts.probes.rdma.roce import ROCE
from gpuprov.facts.probes.rdma.surroundings import HOST, PACKAGES
from gpuprov.host_code.json_members import Json
from gpuprov.resources import Absent, File, Program, Resource, Unit, role_values
from gpuprov.resources.packages import packages_of

Ctx = Context[Rdma]
# Parts that belong to a fabric; a host has at most one of them.
PARTS = (soft, roce, erdma)
# Files of units and programs, each of which belongs to one fabric; those that are not needed are removed.
OWN = (*(path for part in PARTS for path in part.FILES), infiniband.ORDER, *at_boot.PLACES)
# Fields that such a unit applies at each boot.
BY_UNIT = ("soft", "roce", "erdma")


def asked_part(ctx: Ctx) -> at_boot.AtBoot | None:
    """Return the part that configures devices at boot; None if there is none."""
    return next((boot_part for part in PARTS if (boot_part := part.at_boot(ctx))), None)


def configured(ctx: Ctx) -> Iterator[Resource]:
    """Yield the unit that configures devices at boot and its program, other fabrics' units as off and removed, opensm,
    and openibd."""
    boot_part, why = asked_part(ctx), ofed.waits(ctx)
    texts = {**(boot_part.files if boot_part else {}), **infiniband.files(ctx)}
    texts |= {f"{at_boot.UNITS}/{boot_part.unit}": boot_part.text} if boot_part else {}
    program = files_of(at_boot.RDMA, boot_part.modules if boot_part else ())
    yield from (File(path, text) for path, text in texts.items())
    yield from (Program(path, name) for path, name in program.items())
    yield from (Absent(path) for path in OWN if path not in (*texts, *program))
    for part in PARTS:
        if boot_part and boot_part.unit == part.SERVICE:
            active = None if why else True
            yield Unit(name=part.SERVICE, enabled=True, active=active, waits=why, fix=boot_part.fix)
        else:
            yield Unit(name=part.SERVICE, enabled=False, active=False)
    yield from infiniband.units(ctx)
    yield from ofed.configured(ctx)


def desired(ctx: Ctx) -> Iterator[Resource]:
    """Yield `configured`, and the files that the role writes once the devices are present: limits of services,
    nccl.conf."""
    yield from configured(ctx)
    conf = nccl.plan_file(ctx)
    texts = {**limits.plan_limits(ctx)["files"], **({CONFIG: conf["text"]} if conf["text"] else {})}
    yield from (File(path, text) for path, text in texts.items())


def decide(ctx: Ctx) -> dict[str, Any]:
    """Return the decisions of all parts. `later`: what waits for a package source. `fetch`: files that the spec names,
    as step fetch takes them. `install`: packages, `of` what they are, `fix` the fix if they cannot be installed. The
    values of `configured`. `unit`: the unit that configures devices at boot, and whether it has to run `now`.
    `initramfs`: images may be older than the files in modprobe.d. `ofed`, `erdma`, `efa` (loaded from disk:
    `efa_loads`), `opensm`, `limits`, `nccl`: see there."""
    values = role_values(configured(ctx), "files", "units", "program", "absent", "lines", "on", "off")
    del values["on"]
    return {
        "later": ofed.waiting(ctx, ofed.decided(ctx)),
        "fetch": [fetched for part in (ofed, erdma, efa) if (fetched := part.fetch(ctx))],
        **packages(ctx),
        "ofed": ofed.plan_openibd(ctx, ofed.decided(ctx)),
        "erdma": erdma.software(ctx, erdma_decision.decide(ctx.fragment, ctx.facts)),
        "efa": efa.software(ctx),
        "efa_loads": ctx.fragment.fabric == "efa",
        **values,
        "unit": asked_part(ctx),
        "now": "observed" if ofed.waits(ctx) else "ran",
        "initramfs": erdma.outruns_images(ctx),
        "opensm": infiniband.plan_opensm(ctx),
        "limits": limits.plan_limits(ctx),
        "nccl": nccl.plan_file(ctx),
    }


def make(ctx: Ctx) -> dict[str, Json]:
    """Return the role's values: `later`, the transaction, and the values of `configured`. `ofed`: holds of DOCA-OFED's
    packages, `ofed_pin`: what keeps apt from its dkms, `ofed_conf`: openibd's settings. `limits`: the limits of
    services."""
    decided = decide(ctx)
    own = ("later", "of", "install", "fix", "files", "units", "program", "absent", "off")
    ofed_ = decided["ofed"]
    return {
        **{name: decided[name] for name in own},
        "ofed": {name: ofed_[name] for name in ("hold", "release")},
        "ofed_pin": {"files": ofed_["files"]},
        "ofed_conf": {"lines": decided["lines"], "reboot": ofed_["reboot"]},
        "limits": {"files": decided["limits"]["files"]},
        "tasks": handed(ctx, decided),
    }


def packages(ctx: Ctx) -> dict[str, Json]:
    """Return the transaction of the requested stack."""
    if ctx.fragment.own_stack == "doca-ofed":
        fix = "remove what it names, or have it from DOCA's repository alone"
        advice = f"doca-ofed depends on its own openmpi, ucx and rdma-core in exact versions: {fix}"
        return {"of": "DOCA-OFED", "install": list(ofed.decided(ctx).install), "fix": advice}
    if ctx.fragment.own_stack == "erdma-vendor":
        fix = "on EL DKMS comes from EPEL; a kernel whose headers no repository has any more is removed"
        install = erdma_decision.decide(ctx.fragment, ctx.facts).install
        return {"of": "the eRDMA driver", "install": list(install), "fix": f"correct what it says; {fix}"}
    present = ctx.facts.get(PACKAGES)
    advice = (
        "where a package is unknown, add the distribution's own repositories, or a mirror of them; packages of "
        "DOCA-OFED and the distribution's do not go together"
    )
    return {"of": "RDMA", "install": [name for name in wanted_packages(ctx) if name not in present], "fix": advice}


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
    packages=lambda values: (packages_of(values, **{name: values["ofed"][name] for name in ("hold", "release")}),),
)
RESOURCES = Resources(
    desired,
    lambda _host, _block: (*OWN, CONFIG, *limits.PATHS),
    tuple(dict.fromkeys((DEVICES, HOST, ROCE, NCCL, OFED, system.CONTAINER, limits.DROP_INS, *erdma_decision.PROBES))),
    lines=(ofed_catalogue.CONFIG,),
    units=lambda _host, _block: (*(part.SERVICE for part in PARTS), OPENSM_UNIT, ofed_catalogue.UNIT),
    proves={"files": (*BY_UNIT, "ofed"), **dict.fromkeys(("enabled", "active"), (*BY_UNIT, "opensm", "ofed"))},
)
