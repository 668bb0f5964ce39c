"""Desired state of DOCA-OFED: its package source, packages, modules of every kernel, openibd with its settings."""

from collections.abc import Iterator

from gpuprov.capabilities.answers import HEADER
from gpuprov.capabilities.base import Context
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.capabilities.rdma.installers import Fetch
from gpuprov.capabilities.rdma.ofed.checks import conf, foreign, holders
from gpuprov.capabilities.rdma.ofed.decision import Decision, decide, named
from gpuprov.catalog.rdma import ofed as catalogue
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.host.family import family
from gpuprov.facts.probes.rdma.ofed import OFED, PACKAGES
from gpuprov.host_code.json_members import Json
from gpuprov.resources import Lines, Unit

Ctx = Context[Rdma]
PIN = f"""{HEADER}\
# The distribution's dkms, not the one that DOCA's repository has, too.
Package: dkms
Pin: release l=DOCA-HOST*
Pin-Priority: -1
"""
NOTHING: dict[str, Json] = {
    "asked": False,
    "source": "",
    "named": "",
    "files": {},
    "hold": [],
    "release": [],
    "build": [],
    "reboot": "",
    "openibd": None,
}


def is_requested(ctx: Ctx) -> bool:
    return ctx.fragment.own_stack == "doca-ofed"


def fetch(ctx: Ctx) -> Fetch | None:
    """Return the doca-host package, if it has yet to bring its package source."""
    block, source = ctx.fragment.ofed, decided(ctx).source
    if not source:
        return None
    return Fetch(
        of="rdma.ofed",
        url=block.url,
        file="" if block.url else block.file,
        path=source,
        sha256=block.sha256.lower(),
        most=catalogue.MOST,
        public=True,
        fix="the right file, and the sha256 that NVIDIA publishes for it",
    )


def waiting(ctx: Ctx, decision: Decision) -> dict[str, str]:
    """Return what can be resolved only once the package source is present, as the preflight takes it."""
    message = f"{catalogue.PROFILE} is resolved when apply has added {named(ctx.fragment.ofed)}"
    why = f"{named(ctx.fragment.ofed)} brought no package source. Fix: look at it on the host, {decision.source}"
    return {"told": message, "problem": why} if decision.waits else {}


def plan_openibd(ctx: Ctx, decision: Decision) -> dict[str, Json]:
    """Return `source`: the package on the host that brings a package source, which the spec names as `named`. `files`:
    text by path, before anything is installed. `hold`, `release`: packages. `build`: commands that build modules which
    DKMS has not built. `reboot`: why only a reboot loads its modules. `openibd`: None if it is not installed; see
    there."""
    if not is_requested(ctx):
        return NOTHING
    state, installed = ctx.facts.get(OFED), ctx.facts.get(PACKAGES)
    kind = family(ctx.facts.get(system.OS_RELEASE)) or ""
    theirs = [name for name in catalogue.list_packages(kind, held=True) if name in installed]
    return {
        "asked": True,
        "source": decision.source,
        "named": named(ctx.fragment.ofed),
        "files": {catalogue.PIN: PIN} if kind == "debian" else {},
        "hold": theirs if ctx.fragment.ofed.hold else [],
        "release": [] if ctx.fragment.ofed.hold else theirs,
        "build": [
            ["dkms", "install", f"{name}/{version}", "-k", release] for release, name, version in state.unbuilt()
        ],
        "reboot": waits(ctx),
        "openibd": openibd(ctx) if catalogue.PROFILE in installed else None,
    }


def waits(ctx: Ctx) -> str:
    """Return why only a reboot loads OFED's modules; empty if openibd can be restarted, or need not be."""
    held = holders(ctx.facts.get(OFED)) if is_requested(ctx) and foreign(ctx.facts) else ""
    return f"DOCA-OFED's modules are not loaded, and openibd cannot restart: {held}" if held else ""


def configured(ctx: Ctx) -> Iterator[Lines | Unit]:
    """Yield openibd and its settings, if the spec asks for its stack."""
    if is_requested(ctx):
        yield Lines(path=catalogue.CONFIG, keys={"ONBOOT": "yes", **conf(ctx.fragment)})
        why = waits(ctx)
        fix = "/etc/init.d/openibd status, on the host"
        yield Unit(name=catalogue.UNIT, enabled=True, active=None if why else True, waits=why, fix=fix)


def openibd(ctx: Ctx) -> dict[str, Json]:
    """Return the arguments of step openibd. `replace`: modules that are not OFED's, for which it is restarted.
    `unload`: those that hold ib_core, to be unloaded first. `start`: it was not running. `left`: the message if modules
    are not OFED's after its start."""
    out, others = waits(ctx), foreign(ctx.facts)
    left = out or (f"openibd ran, and {' '.join(others)} is still not OFED's" if others else "")
    way = "Fix: journalctl -u openibd, on the host; end what uses RDMA and apply again, or reboot the host"
    return {
        "unit": catalogue.UNIT,
        "replace": [] if out else others,
        "unload": [*catalogue.list_modules("peer"), *catalogue.list_modules("storage")],
        "start": not out and ctx.facts.get(OFED).active != "active",
        "left": f"{left}. {way}" if left else "",
    }


def decided(ctx: Ctx) -> Decision:
    return decide(ctx.fragment.ofed, ctx.facts) if is_requested(ctx) else Decision()
