"""Checks that nothing of NVIDIA's software is left, each thing by its name, and, before anything is changed, that it
can be removed."""

from shlex import quote

from gpuprov.capabilities.answers import APPLY
from gpuprov.capabilities.base import Change, Outcome, check, fail, ok, skip
from gpuprov.capabilities.compared import Group, build_modules, compared, move_packages, rebuild_images
from gpuprov.capabilities.driver import judge_holders
from gpuprov.capabilities.nvidia_absent.host import (
    BROUGHT,
    Ctx,
    has_runfile,
    list_loaded,
    list_remaining,
    list_software,
)
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.driver.leftovers import BLACKLISTS, LIBRARIES, SOFTWARE, UNITS
from gpuprov.facts.probes.driver.runfile import RUNFILE
from gpuprov.facts.probes.host import house, system
from gpuprov.facts.probes.host.family import words
from gpuprov.facts.probes.kernel import initramfs, modules
from gpuprov.host_code.driver.loaded import STACK
from gpuprov.host_code.initramfs import NVIDIA
from gpuprov.host_code.packages.other_driver import RECORD
from gpuprov.resources import KernelModule, Modules

# systemd's states of a unit that no file defines: dpkg leaves those of removed packages masked until they are purged.
GONE = ("not-found", "masked")


def _fix(ctx: Ctx, place: str) -> str:
    """Return the fix for a leftover: apply removes what packages and NVIDIA's installer brought, and nothing else."""
    if list_software(ctx.facts) or has_runfile(ctx.facts):
        return APPLY
    return (
        f"no package that gpuprov knows brought it: {words(ctx.facts.get(system.OS_RELEASE)).owner} {place}; remove it"
    )


@check("nvidia_absent.packages", system.OS_RELEASE, SOFTWARE, evidence=SOFTWARE.evidence)
def packages(ctx: Ctx) -> Outcome:
    """No package of NVIDIA's driver, CUDA, Fabric Manager, DCGM, container toolkit or GPUDirect is installed, in any
    architecture."""
    installed = list_software(ctx.facts)
    if not installed:
        return ok("no NVIDIA package")
    return fail(
        "no NVIDIA package",
        " ".join(f"{name}={version}" for name, version in installed.items()),
        APPLY,
        changes=move_packages({}, installed, installed),
    )


@check("nvidia_absent.runfile", RUNFILE, evidence=RUNFILE.evidence)
def runfile(ctx: Ctx) -> Outcome:
    """No driver of NVIDIA's .run file is installed."""
    current = ctx.facts.get(RUNFILE)
    if current.unreadable:
        return fail("no runfile installation", f"{RECORD} may not be read", "let gpuprov become root on the host")
    if not has_runfile(ctx.facts):
        return ok("no runfile installation")
    change = Change(kind="package", name="NVIDIA's runfile", before=current.version or "installed")
    actual = f"driver {current.version or 'of unknown version'}: {' '.join(current.programs) or RECORD}"
    return fail("no runfile installation", actual, APPLY, changes=(change,))


@compared("nvidia_absent.loaded", modules.LOADED, system.CONTAINER, house.REBOOT_REASONS)
def loaded(ctx: Ctx) -> Group | Outcome:
    """No module of NVIDIA's driver is loaded, nor one that depends on it."""
    if container := ctx.facts.get(system.CONTAINER):
        return skip(f"{container} container: the loaded modules are the machine's, not this host's")
    return Group(
        tuple(KernelModule(name=name, loaded=False) for name in STACK),
        modules=Modules(loaded=ctx.facts.get(modules.LOADED)),
        expected="no module of NVIDIA's loaded",
        reboot=(ctx.facts.known(house.REBOOT_REASONS) or {}).get("nvidia_absent", "") if list_loaded(ctx.facts) else "",
    )


@check("nvidia_absent.modules", *BROUGHT, modules.KERNELS, moment="next-boot", evidence=modules.KERNELS.evidence)
def built(ctx: Ctx) -> Outcome:
    """No kernel has a module of NVIDIA's driver on disk."""
    versions = {kernel.release: kernel.nvidia for kernel in ctx.facts.get(modules.KERNELS) if kernel.nvidia}
    if not versions:
        return ok("no NVIDIA module for any kernel")
    return fail(
        "no NVIDIA module for any kernel",
        "; ".join(f"{version} for {release}" for release, version in versions.items()),
        _fix(ctx, f"$(modinfo -k {next(iter(versions))} -n nvidia)"),
        changes=build_modules("nvidia", versions, "removed"),
    )


@check("nvidia_absent.libraries", *BROUGHT, LIBRARIES, evidence=LIBRARIES.evidence)
def libraries(ctx: Ctx) -> Outcome:
    """The linker knows no libcuda.so.1 and no libnvidia-ml.so.1."""
    paths = ctx.facts.get(LIBRARIES)
    if not paths:
        return ok("no libcuda.so.1, no libnvidia-ml.so.1")
    return fail("no libcuda.so.1, no libnvidia-ml.so.1", " ".join(paths), _fix(ctx, quote(paths[0])))


@check("nvidia_absent.units", *BROUGHT, UNITS, evidence=UNITS.evidence)
def units(ctx: Ctx) -> Outcome:
    """No unit of NVIDIA's software is there, nor runs, nor one of gpuprov's that needs the driver."""
    left = [unit for unit in ctx.facts.get(UNITS).values() if unit.load not in GONE or unit.active == "active"]
    if not left:
        return ok("no NVIDIA unit")
    changes = [
        Change(kind="service", name=unit.name, before=unit.active, after="removed")
        for unit in left
        if unit.active == "active"
    ]
    fix = _fix(ctx, f"$(systemctl show -p FragmentPath --value {left[0].name})")
    return fail("no NVIDIA unit", ", ".join(f"{u.name} ({u.active})" for u in left), fix, changes=changes)


@check("nvidia_absent.initramfs", initramfs.INITRAMFS, moment="next-boot")
def in_initramfs(ctx: Ctx) -> Outcome:
    """No initramfs holds a module of NVIDIA's driver."""
    images = ctx.facts.get(initramfs.INITRAMFS)
    if not images:
        return skip("no initramfs in /boot")
    if unreadable := [image for image in images if not image.readable]:
        message = "not readable: " + " ".join(image.image for image in unreadable)
        return fail("readable images", message, f"run as root; {unreadable[0].listing}")
    holding = [image for image in images if holds_driver(image)]
    if holding:
        names = [image.image for image in holding]
        return fail("no image with NVIDIA's modules", " ".join(names), APPLY, changes=rebuild_images(names))
    return ok(f"{counted(len(images), 'image')} without NVIDIA's modules")


def holds_driver(image: initramfs.Initramfs) -> bool:
    """Return whether the image has a module of NVIDIA's."""
    return any(NVIDIA.fullmatch(f"{name}.ko") for name in image.modules)


@check("nvidia_absent.nouveau", *BROUGHT, BLACKLISTS, moment="next-boot", gate=True, evidence=BLACKLISTS.evidence)
def nouveau(ctx: Ctx) -> Outcome:
    """Says whether the in-tree driver may take the GPUs at the next boot, and what keeps it out."""
    places = ctx.facts.get(BLACKLISTS)
    left = list_remaining(ctx, places)
    after = f"kept out by {', '.join(left)}" if left else "may take the GPUs at the next boot"
    if len(left) == len(places):
        return ok(f"nouveau: {after}")
    before = f"kept out by {', '.join(entry.place for entry in places)}"
    change = Change(kind="module", name="nouveau", before=before, after=after)
    return Outcome(status="pass", expected=f"nouveau: {after}", found=f"nouveau: {after}", changes=(change,))


@check("nvidia_absent.removable", RUNFILE, moment="preflight", evidence=RUNFILE.evidence)
def removable(ctx: Ctx) -> Outcome:
    """A driver of NVIDIA's .run file still has its uninstaller."""
    current = ctx.facts.get(RUNFILE)
    if current.unreadable or not has_runfile(ctx.facts):
        return ok("no runfile installation")
    if not current.programs:
        version = current.version
        fix = f"sh NVIDIA-Linux-$(uname -m)-{version}.run --uninstall, with the file that it was installed from"
        return fail("its uninstaller", f"driver {version} of a runfile, whose nvidia-uninstall is gone", fix)
    return ok(current.programs[0])


@check(
    "nvidia_absent.clients",
    *(nvidia.CLIENTS, modules.LOADED, system.CONTAINER),
    moment="preflight",
    evidence=nvidia.CLIENTS.evidence,
)
def clients(ctx: Ctx) -> Outcome:
    """No user's process holds a GPU whose driver is removed; services are stopped."""
    if kind := ctx.facts.get(system.CONTAINER):
        return skip(f"{kind} container: the loaded driver is the machine's, not this host's")
    if not list_loaded(ctx.facts):
        return ok("no driver is loaded")
    return judge_holders(ctx, ())


CHECKS = (packages, runfile, loaded, built, libraries, units, in_initramfs, nouveau, removable, clients)
