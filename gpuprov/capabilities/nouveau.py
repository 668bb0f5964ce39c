"""`nouveau`: the in-tree drivers that take the GPU before NVIDIA's can, disabled permanently."""

from typing import Annotated

import msgspec

from gpuprov.capabilities.base import Capability, Context, Desired, Outcome, check, fail, ok, skip
from gpuprov.capabilities.compared import Group, compared, keep_out, rebuild_images
from gpuprov.capabilities.tasks import Stages, step
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.host import pci, system
from gpuprov.facts.probes.kernel import initramfs, modules
from gpuprov.facts.probes.kernel.modules import underscored
from gpuprov.host_code.json_members import Json
from gpuprov.resources import KernelModule, Modules
from gpuprov.spec.kernel import Kernel, ModuleName, Scalar
from gpuprov.spec.model import Fragment, HostSpec

# nova_core binds NVIDIA GPUs on kernels that have it: https://github.com/beclab/Olares/issues/3963
IN_TREE = ("nouveau", "nova_core")
# The module nova_core registers its PCI driver under another name ("already bound to NovaCore", same thread).
MODULE_OF_DRIVER = {"NovaCore": "nova_core"}


class Nouveau(Fragment, frozen=True):
    """Keeps the in-tree GPU drivers out of modprobe, of the initramfs and of the running kernel.

    A loaded but unused module is unloaded; if it is in use, that is a reason for a reboot.
    """

    modules: Annotated[tuple[ModuleName, ...], msgspec.Meta(description="Kernel modules to keep out", min_length=1)] = (
        IN_TREE
    )


@compared("nouveau.configured", modules.MODPROBE, fields=("modules",))
def configured(ctx: Context[Nouveau]) -> Group:
    """Each in-tree driver is blacklisted, so that neither udev nor an alias loads it."""
    return keep_out(ctx.facts, ctx.fragment.modules)


@compared("nouveau.running", modules.LOADED, pci.NVIDIA_FUNCTIONS, system.CONTAINER, fields=("modules",))
def running(ctx: Context[Nouveau]) -> Group | Outcome:
    """No in-tree driver is loaded, and none is bound to an NVIDIA GPU."""
    if container := ctx.facts.get(system.CONTAINER):
        return skip(f"{container} container: the loaded modules are the machine's, not this host's")
    names = {module.kernel_name for module in unloaded(ctx.fragment)}
    bound = [
        f"{f.address} ({f.driver})"
        for f in ctx.facts.get(pci.NVIDIA_FUNCTIONS)
        if MODULE_OF_DRIVER.get(f.driver, underscored(f.driver)) in names
    ]
    loaded = ctx.facts.get(modules.LOADED)
    present = sorted(names & set(loaded))
    busy = bound or any(loaded[name] for name in present)
    return Group(
        unloaded(ctx.fragment),
        modules=Modules(loaded=loaded),
        expected="not loaded: " + " ".join(sorted(names)),
        fix="blacklist, rebuild the initramfs, reboot: gpuprov apply",
        beside=(f"bound: {' '.join(bound)}",) * bool(bound),
        reboot=f"{' '.join(present) or 'an in-tree driver'} is in use and leaves only with a reboot" if busy else "",
    )


def unloaded(block: Nouveau) -> tuple[KernelModule, ...]:
    """Return the in-tree drivers as modules that are not loaded."""
    return tuple(KernelModule(name=name, loaded=False) for name in block.modules)


@check("nouveau.initramfs", initramfs.INITRAMFS, fields=("modules",), moment="next-boot")
def in_initramfs(ctx: Context[Nouveau]) -> Outcome:
    """No initramfs can load an in-tree driver: the module is not inside, or the blacklist is inside with it."""
    images = ctx.facts.get(initramfs.INITRAMFS)
    if not images:
        return skip("no initramfs in /boot")
    names = {underscored(name) for name in ctx.fragment.modules}
    if unreadable := [image for image in images if not image.readable]:
        message = "not readable: " + " ".join(image.image for image in unreadable)
        return fail("readable images", message, f"run as root; {unreadable[0].listing}")
    if armed := [image for image in images if names & image.modules and not image.holds_configuration]:
        changes = rebuild_images(image.image for image in armed)
        message = "; ".join(f"{image.image} ({' '.join(sorted(names & image.modules))})" for image in armed)
        return fail("no in-tree driver, or its blacklist, in every image", message, armed[0].rebuild, changes=changes)
    return ok(f"{counted(len(images), 'image')} cannot load {' '.join(sorted(names))}")


def contribute(_host: HostSpec, nouveau: Nouveau) -> Kernel:
    options: dict[str, dict[str, Scalar]] = {"nouveau": {"modeset": 0}} if "nouveau" in nouveau.modules else {}
    return Kernel(blacklist=nouveau.modules, module_options=options)


def export(facts: Facts) -> Fragment | None:
    """Return the modules that are kept out as this capability does it; a blacklist of another origin alone would not
    verify as gpuprov's."""
    configured = facts.get(modules.MODPROBE)
    kept_out = tuple(name for name in IN_TREE if name in configured.blacklist)
    complete = "nouveau" not in kept_out or configured.options.get("nouveau", {}).get("modeset") == "0"
    carried = all(image.holds_configuration for image in facts.get(initramfs.INITRAMFS))
    return Nouveau(modules=kept_out) if kept_out and complete and carried else None


def doubts(facts: Facts) -> list[str]:
    """Return in-tree drivers on a GPU: a host with NVIDIA's driver installed is not meant to have them there."""
    if facts.get(system.CONTAINER):
        return []
    bound = [f for f in facts.get(pci.NVIDIA_FUNCTIONS) if MODULE_OF_DRIVER.get(f.driver, f.driver) in IN_TREE]
    return [f"{f.address} is bound to {f.driver}, and NVIDIA's driver cannot have it" for f in bound]


UNLOAD = step("Unload the in-tree drivers, or request a reboot", "unload", arguments={"capability": "nouveau"})
TASKS: Stages = {"configure": (UNLOAD,)}


def desired(ctx: Context[Nouveau]) -> dict[str, Json]:
    """Return what the role does: in-tree drivers are taken out of the kernel; in a container the loaded modules are the
    machine's."""
    names = [] if ctx.facts.get(system.CONTAINER) else [module.kernel_name for module in unloaded(ctx.fragment)]
    return {"tasks": {"unload": {"modules": names}}}


CAPABILITY = Capability(
    name="nouveau",
    summary="nouveau and nova_core out of modprobe.d, the initramfs and the running kernel",
    fragment=Nouveau,
    checks=(configured, running, in_initramfs),
    contribute=contribute,
    export=export,
    doubts=doubts,
    export_probes=(modules.MODPROBE, initramfs.INITRAMFS),
    tasks=TASKS,
    desired=Desired((system.CONTAINER,), desired),
    driverless=True,
)
