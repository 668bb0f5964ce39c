"""Checks of the running kernel's start, and of the next boot: command line, boot entries, initramfs."""

from collections.abc import Mapping

from gpuprov.capabilities.answers import APPLY
from gpuprov.capabilities.base import Context, Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.booting import coming, none_boots
from gpuprov.capabilities.compared import Group, compared, rebuild_images
from gpuprov.capabilities.kernel.now import listed
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.host.family import family
from gpuprov.facts.probes.kernel import boot, initramfs, modules
from gpuprov.facts.probes.kernel.next_boot import NEXT_BOOT
from gpuprov.resources import Setting
from gpuprov.resources.kernel_module import MODPROBE_FILE
from gpuprov.spec.kernel import Kernel

# The file that is changed for the boot entries, and the command that regenerates them by hand, by family.
ENTRIES = {
    "debian": ("/etc/default/grub.d/90-gpuprov.cfg", "update-grub"),
    "redhat": ("/boot/loader/entries", 'grubby --update-kernel=ALL --args="{}"'),
    "suse": ("/boot/grub2/grub.cfg", "GRUB_CMDLINE_LINUX in /etc/default/grub; grub2-mkconfig -o /boot/grub2/grub.cfg"),
}
IMAGES = {"debian": "/boot/initrd.img-{}", "redhat": "/boot/initramfs-{}.img", "suse": "/boot/initrd-{}"}


def parameters(kernel: Kernel, device: str = "") -> tuple[Setting, ...]:
    """Return the parameters of the command line, of the running kernel, or of a boot entry."""
    reason = "" if device else f"the kernel command line should hold {listed(kernel.command_line)}"
    return tuple(
        Setting(
            kind="command line",
            key=key,
            value=value,
            device=device,
            reboot=reason,
            moment="next-boot" if device else "now",
        )
        for key, value in kernel.command_line.items()
    )


@compared("kernel.command_line", boot.COMMAND_LINE, system.CONTAINER, fields=("command_line",))
def command_line(ctx: Context[Kernel]) -> Group | Outcome:
    """The running kernel was started with every wanted parameter."""
    if not ctx.fragment.command_line:
        return not_asked()
    if ctx.facts.get(system.CONTAINER):
        return skip("a container has no kernel command line of its own")
    return Group(
        parameters(ctx.fragment),
        {("", key): value for key, value in ctx.facts.get(boot.COMMAND_LINE).items()},
        expected=listed(ctx.fragment.command_line),
        fix=f"{APPLY}, then a reboot",
        changed="",
    )


@compared(
    "kernel.boot_entries",
    *(boot.BOOT_ENTRIES, system.CONTAINER, system.OS_RELEASE),
    fields=("command_line",),
    moment="next-boot",
    evidence=boot.BOOT_ENTRIES.evidence,
)
def boot_entries(ctx: Context[Kernel]) -> Group | Outcome:
    """Every entry of the bootloader (rescue entries aside) carries every wanted parameter, and so do the settings from
    which those of later kernels are made."""
    desired = ctx.fragment.command_line
    if not desired:
        return not_asked()
    if ctx.facts.get(system.CONTAINER):
        return skip("a container has no bootloader")
    known = ctx.facts.get(boot.BOOT_ENTRIES)
    entries = [entry for entry in known if not {"single", "recovery"} & set(entry)]
    file, remake = ENTRIES[family(ctx.facts.get(system.OS_RELEASE)) or "debian"]
    if not entries:
        return fail(listed(desired), "no grub entries found", "only grub is supported; set the parameters by hand")
    each = [setting for number in range(len(entries)) for setting in parameters(ctx.fragment, f"entry {number}")]
    return Group(
        tuple(each),
        {(f"entry {number}", key): value for number, entry in enumerate(entries) for key, value in entry.items()},
        expected=listed(desired),
        right=f"{listed(desired)} in {counted(len(entries), 'boot entry')}",
        fix="; ".join([remake.format(listed(desired)), *_explain_templates(known.templates, desired)]),
        beside=tuple(
            f"the next kernel's entry would lack {words}: {path}"
            for path, words in _list_lacking(known.templates, desired).items()
        ),
        changed="" if _is_outdone(known.templates, desired) else file,
    )


def _is_outdone(templates: Mapping[str, boot.BootEntry], desired: Mapping[str, str]) -> bool:
    """Return whether a file of the site's, which GRUB's defaults read last, sets the line without gpuprov's words."""
    return any(
        path.startswith("/etc/default/grub.d/") and path != ENTRIES["debian"][0]
        for path in _list_lacking(templates, desired)
    )


def _list_lacking(templates: Mapping[str, boot.BootEntry], desired: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters that a template of later entries lacks, by its file."""
    lacking = {
        path: listed({key: value for key, value in desired.items() if template.get(key) != value})
        for path, template in templates.items()
    }
    return {path: words for path, words in lacking.items() if words}


def _explain_templates(templates: Mapping[str, boot.BootEntry], desired: Mapping[str, str]) -> list[str]:
    """Return how each of these files is corrected."""
    return [
        f'{path}: GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX ...", which keeps what other files say'
        if path.startswith("/etc/default/grub.d/")
        else f"{APPLY} adds it to {path}"
        for path in _list_lacking(templates, desired)
    ]


@check(
    "kernel.initramfs",
    *(initramfs.INITRAMFS, modules.KERNELS, system.OS_RELEASE),
    moment="next-boot",
    fields=("blacklist", "module_options"),
    evidence=initramfs.INITRAMFS.evidence,
)
def initramfs_current(ctx: Context[Kernel]) -> Outcome:
    """The initramfs of every installed kernel holds gpuprov's modprobe.d file, in its present state."""
    if not (ctx.fragment.blacklist or ctx.fragment.module_options):
        return not_asked()
    images = ctx.facts.get(initramfs.INITRAMFS)
    if not images:
        return skip("no initramfs in /boot")
    made = {image.release for image in images}
    without = [k.release for k in ctx.facts.get(modules.KERNELS) if k.bootable and k.release not in made]
    if without:
        image = IMAGES[family(ctx.facts.get(system.OS_RELEASE)) or "debian"]
        names = [image.format(name) for name in without]
        changes = rebuild_images(names, "made")
        by_dracut = any(image.by_dracut for image in images)
        fix = f"dracut {names[0]} {without[0]}" if by_dracut else f"update-initramfs -c -k {without[0]}"
        return fail("an initramfs for every kernel", f"none for {' '.join(without)}", fix, changes=changes)
    if unreadable := [image for image in images if not image.readable]:
        message = "not readable: " + " ".join(image.image for image in unreadable)
        return fail("readable images", message, f"run as root; {unreadable[0].listing}")
    if stale := [image for image in images if not image.holds_configuration]:
        changes = rebuild_images(image.image for image in stale)
        message = "stale: " + " ".join(image.old_copy or image.image for image in stale)
        return fail(f"{MODPROBE_FILE} inside", message, f"{APPLY}; by hand: {stale[0].rebuild}", changes=changes)
    return ok(f"{MODPROBE_FILE} in {counted(len(images), 'image')}")


@check(
    "kernel.modules_built",
    *(modules.BUILT, modules.KERNELS, NEXT_BOOT, system.CONTAINER),
    moment="next-boot",
    fields=("modules_built",),
    evidence=modules.BUILT.evidence,
)
def modules_built(ctx: Context[Kernel]) -> Outcome:
    """Each kernel of the next boots has these modules, built for it."""
    names = [modules.underscored(name) for name in ctx.fragment.modules_built]
    if not names:
        return not_asked()
    boots = coming(ctx.facts)
    if boots is None:
        return none_boots(ctx.facts)
    built = {(module.release, module.name): module for module in ctx.facts.get(modules.BUILT)}
    wrong: dict[str, list[str]] = {}
    for release in dict.fromkeys(kernel.release for kernel in boots.each):
        for name in names:
            module = built.get((release, name), modules.BuiltModule(release, name))
            if not module.fits:
                reason = f"{name} is built for {module.kernel}" if module.path else f"no {name}"
                wrong.setdefault(release, []).append(reason)
    expected = f"{' '.join(names)} for {' and '.join(kernel.release for kernel in boots.each)}"
    if wrong:
        message = "; ".join(f"{release}: {', '.join(reasons)}" for release, reasons in wrong.items())
        release = next(iter(wrong))
        fix = (
            f"dkms autoinstall -k {release}, or the package that brings it for this kernel; until then do not "
            "reboot, or have another kernel start"
        )
        return fail(expected, message, fix)
    return ok(f"{expected}, which {'boots' if len(boots.each) == 1 else 'boot'} next")


CHECKS = (command_line, boot_entries, initramfs_current, modules_built)
