"""gdrcopy, if requested: packages, module for every kernel, device node, the service that loads it at boot."""

from __future__ import annotations

from collections.abc import Iterator

from gpuprov.capabilities import package_sources
from gpuprov.capabilities.answers import APPLY
from gpuprov.capabilities.base import Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.compared import find_fault, find_missing
from gpuprov.capabilities.gpudirect_rdma.checks import Ctx
from gpuprov.catalog.rdma import gpudirect as catalogue
from gpuprov.facts.probes.base import Facts, ProbeFailed
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.host.family import family, words
from gpuprov.facts.probes.rdma import gpudirect as probe
from gpuprov.resources import KernelModule, Modules, Setting, Unit

NOT_ASKED = "gdrcopy is not in the spec"
SHOWN = (
    "dpkg -l gdrdrv-dkms libgdrapi; rpm -q gdrcopy gdrcopy-kmod; modinfo gdrdrv; ls -l /dev/gdrdrv; grep gdrdrv "
    "/proc/devices"
)
BASE = (system.OS_RELEASE, probe.PACKAGES)
SOURCE = (
    "NVIDIA has its packages as files (https://developer.download.nvidia.com/compute/redist/gdrcopy/): put them "
    "into a repository of the site's, or gdrcopy: {install: false}"
)


def known(facts: Facts) -> catalogue.Gdrcopy:
    """Return gdrcopy on this distribution. Raises ProbeFailed if nothing is known."""
    release = facts.get(system.OS_RELEASE)
    matched = catalogue.find_gdrcopy(family(release) or "")
    if matched is None:
        message = f"gpudirect_rdma.gdrcopy.install: no packages of gdrcopy are known for {release.name or release.id}"
        raise ProbeFailed(message, "gdrcopy: {install: false}")
    return matched


def list_packages(ctx: Ctx) -> tuple[str, ...]:
    """Return the requested packages."""
    own = known(ctx.facts)
    return (*own.packages, *(own.tests if ctx.fragment.gdrcopy.tests else ()))


@check(
    "gpudirect_rdma.gdrcopy_offered",
    *(*BASE, probe.INDEX, *package_sources.COMING),
    fields=("gdrcopy",),
    moment="preflight",
    evidence=f"{probe.PACKAGES.evidence}; {probe.INDEX.evidence}",
)
def offered(ctx: Ctx) -> Outcome:
    """gdrcopy's packages are installed, or in the host's package sources."""
    if not ctx.fragment.gdrcopy.install:
        return not_asked(NOT_ASKED)
    present, index = ctx.facts.get(probe.PACKAGES), ctx.facts.get(probe.INDEX)
    lacking = [name for name in list_packages(ctx) if name not in present]
    if index.busy and lacking:
        return skip("another package manager is at work on the host: plan again when it has ended; apply waits for it")
    none = [name for name in lacking if not index.get(name)]
    if none and (url := package_sources.coming(ctx.host.capabilities.get("nvidia_driver"), ctx.facts)):
        return package_sources.later("gdrcopy", url)
    if none:
        return fail(" ".join(list_packages(ctx)), f"no package source of the host has {' '.join(none)}", SOURCE)
    return ok(" ".join(list_packages(ctx)))


@check("gpudirect_rdma.gdrcopy", *BASE, probe.GDRCOPY, system.CONTAINER, fields=("gdrcopy",), evidence=SHOWN)
def gdrcopy(ctx: Ctx) -> Outcome:
    """gdrcopy is installed, its module loaded, and /dev/gdrdrv leads to it, for every user."""
    if not ctx.fragment.gdrcopy.install:
        return not_asked(NOT_ASKED)
    present, state = ctx.facts.get(probe.PACKAGES), ctx.facts.get(probe.GDRCOPY)
    expected = f"{' '.join(list_packages(ctx))}, gdrdrv loaded, /dev/gdrdrv"
    if missing := find_missing(list_packages(ctx), present, expected=expected):
        return missing
    broken = [name for name in list_packages(ctx) if not present[name].whole]
    if broken:
        return fail(expected, f"incomplete: {' '.join(broken)}", words(ctx.facts.get(system.OS_RELEASE)).repair)
    if ctx.facts.get(system.CONTAINER):
        return ok(f"{' '.join(list_packages(ctx))}; a container has the modules and devices of its machine", expected)
    return find_device_fault(ctx, expected) or ok(f"gdrdrv loaded, /dev/gdrdrv {state.node}", expected)


def find_device_fault(ctx: Ctx, expected: str = "") -> Outcome | None:
    """Return the outcome of a host without the loaded module, or without a device node that leads to it for every user;
    None if it has both, or if they are its machine's."""
    state, service = ctx.facts.get(probe.GDRCOPY), known(ctx.facts).service
    if ctx.facts.get(system.CONTAINER):
        return None
    restart = f"systemctl restart {service} ({APPLY} does), after the NVIDIA driver is loaded"
    loaded = Modules(loaded=("gdrdrv",) * state.loaded)
    if fault := find_fault(
        KernelModule(name="gdrdrv", loaded=True), loaded, expected, "gdrdrv is not loaded", fix=restart
    ):
        return fault
    major, _, mode = state.node.partition(" ")
    node = Setting(kind="/dev/gdrdrv", value=state.major, missing="")
    message = (
        f"/dev/gdrdrv has major number {major}, the module {state.major}" if state.node else "there is no /dev/gdrdrv"
    )
    if fault := find_fault(node, {("", ""): major} if state.node else {}, expected, message, fix=restart):
        return fault
    if mode != "666":
        return fail("/dev/gdrdrv of mode 666", f"mode {mode}", restart)
    return None


@check(
    "gpudirect_rdma.gdrcopy_boot",
    *BASE,
    probe.GDRCOPY,
    fields=("gdrcopy",),
    moment="next-boot",
    evidence="modinfo -k $(uname -r) gdrdrv",
)
def gdrcopy_boot(ctx: Ctx) -> Outcome:
    """Every kernel that can boot has gdrdrv on disk."""
    if not ctx.fragment.gdrcopy.install:
        return not_asked(NOT_ASKED)
    state, own = ctx.facts.get(probe.GDRCOPY), known(ctx.facts)
    bare = [release for release, version in state.kernels.items() if not version]
    if bare or not state.kernels:
        message = f"none for {', '.join(bare)}" if bare else "no kernel found"
        is_installed = all(name in ctx.facts.get(probe.PACKAGES) for name in own.packages)
        fix = f"dkms status gdrdrv; dkms autoinstall -k {bare[0]}" if is_installed and bare else APPLY
        return fail("gdrdrv for every kernel", message, fix)
    return ok(f"gdrdrv for {' '.join(state.kernels)}")


def units(ctx: Ctx) -> Iterator[Unit]:
    """Yield the package's service, which loads the module and makes the device node, if gdrcopy is requested."""
    if ctx.fragment.gdrcopy.install:
        yield Unit(name=known(ctx.facts).service, enabled=True)


CHECKS = (gdrcopy, gdrcopy_boot)
PREFLIGHT = (offered,)
