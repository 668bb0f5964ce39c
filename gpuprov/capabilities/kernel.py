"""`kernel`: the one owner of command line, modprobe.d, modules-load.d, initramfs, sysctl and limits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from gpuprov.capabilities.base import Capability, Change, Context, Outcome, check, fail, ok, skip
from gpuprov.probe import boot, initramfs, modules, system, systemd
from gpuprov.probe.base import Facts
from gpuprov.probe.family import family
from gpuprov.probe.modules import underscored
from gpuprov.spec.build import convert
from gpuprov.spec.kernel import Kernel, Scalar
from gpuprov.spec.model import Fragment, HostSpec
from gpuprov.spec.problem import Problem

MODPROBE_FILE = "/etc/modprobe.d/gpuprov.conf"
IN_KIB = ("core", "data", "fsize", "memlock", "stack")
"""Limits that limits.conf(5) counts in KiB, and systemd in bytes."""


def as_text(value: Scalar) -> str:
    """A module option as modprobe.d writes it: true is 1."""
    return str(int(value)) if isinstance(value, bool) else str(value)


def differences(wanted: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """`key=found (not wanted)` for each wanted key that is missing or has another value."""
    return [f"{key}={found.get(key, 'missing')}" for key, value in wanted.items() if found.get(key) != value]


def listed(wanted: Mapping[str, str]) -> str:
    return " ".join(f"{key}={value}" if value else key for key, value in wanted.items())


@check("kernel.blacklist", modules.MODPROBE, fields=("blacklist",))
def blacklist(ctx: Context[Kernel]) -> Outcome:
    """Every module that shall stay out is blacklisted in modprobe's merged configuration."""
    wanted = [underscored(name) for name in ctx.fragment.blacklist]
    missing = [name for name in wanted if name not in ctx.facts.get(modules.MODPROBE).blacklist]
    if missing:
        change = Change(kind="file", name=MODPROBE_FILE, after="blacklist " + " ".join(missing))
        return fail(
            " ".join(wanted),
            f"not blacklisted: {' '.join(missing)}",
            "gpuprov apply writes " + MODPROBE_FILE,
            changes=[change],
        )
    return ok("blacklisted: " + (" ".join(wanted) or "nothing asked"))


@check("kernel.module_options", modules.MODPROBE, fields=("module_options",))
def module_options(ctx: Context[Kernel]) -> Outcome:
    """Every module option stands in modprobe's merged configuration with the wanted value."""
    found = ctx.facts.get(modules.MODPROBE).options
    wrong, wanted_text = [], []
    for module, options in ctx.fragment.module_options.items():
        wanted = {key: as_text(value) for key, value in options.items()}
        wanted_text.append(f"{module}: {listed(wanted)}")
        wrong += [f"{module}: {item}" for item in differences(wanted, found.get(underscored(module), {}))]
    if wrong:
        change = Change(kind="file", name=MODPROBE_FILE, before="; ".join(wrong), after="; ".join(wanted_text))
        hint = f"gpuprov apply writes {MODPROBE_FILE}; another file in /etc/modprobe.d may set the same option"
        return fail("; ".join(wanted_text), "; ".join(wrong), hint, changes=[change])
    return ok("; ".join(wanted_text) or "nothing asked")


@check(
    "kernel.modules_load",
    modules.LOADED,
    modules.BUILT_IN,
    boot.MODULES_LOAD,
    system.CONTAINER,
    fields=("modules_load",),
)
def modules_load(ctx: Context[Kernel]) -> Outcome:
    """Modules to load at boot are configured; on a host with a kernel of its own they are loaded now too."""
    wanted = [underscored(name) for name in ctx.fragment.modules_load]
    configured = ctx.facts.get(boot.MODULES_LOAD)
    missing = [name for name in wanted if name not in configured]
    change = Change(kind="file", name="/etc/modules-load.d/gpuprov.conf", after=" ".join(wanted))
    if missing:
        return fail(" ".join(wanted), f"not in modules-load.d: {' '.join(missing)}", "gpuprov apply", changes=[change])
    loaded = (
        wanted
        if ctx.facts.get(system.CONTAINER)
        else {*ctx.facts.get(modules.LOADED), *ctx.facts.get(modules.BUILT_IN)}
    )
    absent = [name for name in wanted if name not in loaded]
    if absent:
        change = Change(kind="module", name=" ".join(absent), after="loaded")
        return fail(
            " ".join(wanted), f"not loaded: {' '.join(absent)}", f"modprobe {absent[0]}; dmesg | tail", changes=[change]
        )
    return ok("configured: " + (" ".join(wanted) or "nothing asked"))


@check("kernel.sysctl", boot.SYSCTL, boot.SYSCTL_FILES, fields=("sysctl",))
def sysctl(ctx: Context[Kernel]) -> Outcome:
    """Every sysctl has the wanted value now, and stands in gpuprov's file for the next boot."""
    wanted = {key: " ".join(str(value).split()) for key, value in ctx.fragment.sysctl.items()}
    if not wanted:
        return ok("nothing asked")
    wrong = differences(wanted, ctx.facts.get(boot.SYSCTL))
    unkept = differences(wanted, ctx.facts.get(boot.SYSCTL_FILES))
    if wrong or unkept:
        found = " ".join(wrong) or f"right now, but not kept: {' '.join(unkept)}"
        change = Change(kind="setting", name="sysctl", before=found, after=listed(wanted))
        return fail(
            listed(wanted), found, "sysctl -a | grep KEY; a later file in /etc/sysctl.d may win", changes=[change]
        )
    return ok(listed(wanted))


def _in_units(item: str, value: str) -> str:
    """A limit of systemd's in the unit of limits.conf(5)."""
    if item in IN_KIB and value.isdigit():
        return str(int(value) // 1024) if int(value) % 1024 == 0 else f"{value} bytes"
    return value.replace("infinity", "unlimited")


def service_limits(facts: Facts, keys: Iterable[str]) -> dict[str, str]:
    """systemd's limits in the units of limits.conf; where soft and hard differ, both."""
    found = facts.get(systemd.DEFAULT_LIMITS)
    return {
        key: boot.soft_and_hard(_in_units(key, found.get(f"{key}soft", found[key])), _in_units(key, found[key]))
        for key in keys
        if key in found
    }


@check("kernel.limits", boot.LOGIN_LIMITS, systemd.DEFAULT_LIMITS, fields=("limits",))
def limits(ctx: Context[Kernel]) -> Outcome:
    """Each limit holds for login sessions (pam_limits) and for services (systemd)."""
    wanted: dict[str, str] = {key: str(value) for key, value in ctx.fragment.limits.items()}
    if not wanted:
        return ok("nothing asked")
    login = differences(wanted, ctx.facts.get(boot.LOGIN_LIMITS))
    daemons = service_limits(ctx.facts, wanted)
    wrong = [f"login {item}" for item in login] + [f"service {item}" for item in differences(wanted, daemons)]
    if wrong:
        change = Change(kind="setting", name="limits", before="; ".join(wrong), after=listed(wanted))
        return fail(
            listed(wanted),
            "; ".join(wrong),
            "gpuprov apply; running services keep their limits until restarted",
            changes=[change],
        )
    return ok(listed(wanted))


@check("kernel.command_line", boot.COMMAND_LINE, system.CONTAINER, fields=("command_line",))
def command_line(ctx: Context[Kernel]) -> Outcome:
    """The running kernel was started with every wanted parameter."""
    wanted = ctx.fragment.command_line
    kind: str = ctx.facts.get(system.CONTAINER)
    if wanted and kind:
        return skip("a container has no kernel command line of its own")
    wrong = differences(wanted, ctx.facts.get(boot.COMMAND_LINE))
    if wrong:
        reason = f"the kernel command line shall hold {listed(wanted)}"
        return fail(listed(wanted), " ".join(wrong), "gpuprov apply, then a reboot", reboot=reason)
    return ok(listed(wanted) or "nothing asked")


@check(
    "kernel.boot_entries",
    *(boot.BOOT_ENTRIES, system.CONTAINER, system.OS_RELEASE),
    fields=("command_line",),
    moment="next-boot",
)
def boot_entries(ctx: Context[Kernel]) -> Outcome:
    """Every entry of the bootloader (rescue entries aside) carries every wanted parameter."""
    wanted = ctx.fragment.command_line
    if not wanted:
        return ok("nothing asked")
    if ctx.facts.get(system.CONTAINER):
        return skip("a container has no bootloader")
    entries = [entry for entry in ctx.facts.get(boot.BOOT_ENTRIES) if not {"single", "recovery"} & set(entry)]
    redhat = family(ctx.facts.get(system.OS_RELEASE)) == "redhat"
    file = "/boot/loader/entries" if redhat else "/etc/default/grub.d/90-gpuprov.cfg"
    change = Change(kind="file", name=file, after=listed(wanted))
    if not entries:
        return fail(listed(wanted), "no grub entries found", "only grub is supported; set the parameters by hand")
    wrong = sorted({item for entry in entries for item in differences(wanted, entry)})
    if wrong:
        hint = f'grubby --update-kernel=ALL --args="{listed(wanted)}"' if redhat else "update-grub"
        return fail(listed(wanted), " ".join(wrong), hint, changes=[change])
    return ok(f"{listed(wanted)} in {len(entries)} boot entries")


@check(
    "kernel.initramfs",
    *(initramfs.INITRAMFS, modules.KERNELS, system.OS_RELEASE),
    moment="next-boot",
    fields=("blacklist", "module_options"),
)
def initramfs_current(ctx: Context[Kernel]) -> Outcome:
    """The initramfs of every installed kernel holds gpuprov's modprobe.d file, in its present state."""
    if not (ctx.fragment.blacklist or ctx.fragment.module_options):
        return ok("nothing asked")
    images = ctx.facts.get(initramfs.INITRAMFS)
    if not images:
        return skip("no initramfs in /boot")
    made = {image.release for image in images}
    without = [k.release for k in ctx.facts.get(modules.KERNELS) if k.bootable and k.release not in made]
    if without:
        redhat = family(ctx.facts.get(system.OS_RELEASE)) == "redhat"
        names = [f"/boot/initramfs-{name}.img" if redhat else f"/boot/initrd.img-{name}" for name in without]
        changes = [Change(kind="initramfs", name=name, after="made") for name in names]
        by_dracut = any(image.by_dracut for image in images)
        hint = f"dracut {names[0]} {without[0]}" if by_dracut else f"update-initramfs -c -k {without[0]}"
        return fail("an initramfs for every kernel", f"none for {' '.join(without)}", hint, changes=changes)
    if unreadable := [image for image in images if not image.readable]:
        told = "not readable: " + " ".join(image.image for image in unreadable)
        return fail("readable images", told, f"run as root; {unreadable[0].listing}")
    if stale := [image for image in images if not image.holds_configuration]:
        changes = [Change(kind="initramfs", name=image.image, after="rebuilt") for image in stale]
        told = "stale: " + " ".join(image.image for image in stale)
        return fail(f"{MODPROBE_FILE} inside", told, stale[0].rebuild, changes=changes)
    return ok(f"{len(images)} images hold {MODPROBE_FILE}")


def rules(_host: HostSpec, kernel: Kernel) -> Iterable[Problem]:
    for key, value in kernel.command_line.items():
        place = ("kernel", "command_line", key)
        if re.search(r"[\s\"'\\$`]", key + value):
            message = f'kernel.command_line: "{key}={value}" has a space, a quote or a shell character'
            yield Problem(path=place, message=message, hint="give one parameter per key")
        elif not key or "=" in key:
            name, _, after = key.partition("=")
            message = f'kernel.command_line: the key is "{key}"'
            yield Problem(
                path=place, message=message, hint=f'write the name as the key: {name or "NAME"}: "{after or value}"'
            )
    both = {underscored(n) for n in kernel.blacklist} & {underscored(n) for n in kernel.modules_load}
    for name in sorted(both):
        message = f'"{name}" is both blacklisted and loaded at boot'
        yield Problem(
            path=("kernel", "modules_load"),
            message=message,
            hint="leave it out of kernel.modules_load, or of what keeps it out (kernel.blacklist, nouveau.modules)",
        )


def export(facts: Facts) -> Fragment | None:
    """What has no other owner: gpuprov's sysctls, and limits that logins and services share. Blacklists and module options
    are exported by the capabilities that contribute them; command line and modules-load are not exported."""
    sysctls = {key: int(value) if value.isdigit() else value for key, value in facts.get(boot.SYSCTL_FILES).items()}
    login = facts.get(boot.LOGIN_LIMITS)
    both = {key: value for key, value in service_limits(facts, login).items() if login[key] == value}
    fragment, _ = convert(
        {"sysctl": sysctls, "limits": {k: int(v) if v.isdigit() else v for k, v in both.items()}}, Kernel
    )
    return fragment if sysctls or both else None


CAPABILITY = Capability(
    name="kernel",
    summary="kernel command line, modules, initramfs, sysctl and limits, owned in one place",
    fragment=Kernel,
    checks=(blacklist, module_options, modules_load, sysctl, limits, command_line, boot_entries, initramfs_current),
    rules=rules,
    export=export,
    export_probes=(boot.SYSCTL_FILES, boot.LOGIN_LIMITS, systemd.DEFAULT_LIMITS),
)
