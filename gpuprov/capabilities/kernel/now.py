"""Checks of the kernel's current configuration: blacklists, module options, modules, sysctls, limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpuprov.capabilities.base import Change, Context, Outcome, check, fail, not_asked, ok
from gpuprov.probe.base import Facts
from gpuprov.probe.host import system, systemd
from gpuprov.probe.kernel import boot, modules
from gpuprov.probe.kernel.modules import underscored
from gpuprov.reading import is_whole
from gpuprov.spec.kernel import Kernel, Scalar

MODPROBE_FILE = "/etc/modprobe.d/gpuprov.conf"
IN_KIB = ("core", "data", "fsize", "memlock", "stack")
"""Limits that limits.conf(5) counts in KiB, and systemd in bytes."""


def as_text(value: Scalar) -> str:
    """Return a module option as modprobe.d writes it: true is 1."""
    return str(int(value)) if isinstance(value, bool) else str(value)


def differences(wanted: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """Return `key=found (not wanted)` for each wanted key that is missing or has another value."""
    return [f"{key}={found.get(key, 'missing')}" for key, value in wanted.items() if found.get(key) != value]


def listed(wanted: Mapping[str, str]) -> str:
    return " ".join(f"{key}={value}" if value else key for key, value in wanted.items())


@check("kernel.blacklist", modules.MODPROBE, fields=("blacklist",))
def blacklist(ctx: Context[Kernel]) -> Outcome:
    """Every module that should stay out is blacklisted in modprobe's merged configuration."""
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
    return ok("blacklisted: " + " ".join(wanted)) if wanted else not_asked()


@check("kernel.module_options", modules.MODPROBE, fields=("module_options",))
def module_options(ctx: Context[Kernel]) -> Outcome:
    """Every module option has the wanted value in modprobe's merged configuration."""
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
    return ok("; ".join(wanted_text)) if wanted_text else not_asked()


@check(
    "kernel.modules_load",
    modules.LOADED,
    modules.BUILT_IN,
    boot.MODULES_LOAD,
    system.CONTAINER,
    fields=("modules_load",),
)
def modules_load(ctx: Context[Kernel]) -> Outcome:
    """Modules to load at boot are configured; on a host with its own kernel they are also loaded now."""
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
    return ok("configured: " + " ".join(wanted)) if wanted else not_asked()


@check("kernel.sysctl", boot.SYSCTL, boot.SYSCTL_FILES, fields=("sysctl",))
def sysctl(ctx: Context[Kernel]) -> Outcome:
    """Every sysctl has the wanted value now, and is in gpuprov's file for the next boot."""
    wanted = {key: " ".join(str(value).split()) for key, value in ctx.fragment.sysctl.items()}
    if not wanted:
        return not_asked()
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
    """Return a limit of systemd's in the unit of limits.conf(5)."""
    if item in IN_KIB and is_whole(value):
        return str(int(value) // 1024) if int(value) % 1024 == 0 else f"{value} bytes"
    return value.replace("infinity", "unlimited")


def service_limits(facts: Facts, keys: Iterable[str]) -> dict[str, str]:
    """Return systemd's limits in the units of limits.conf; both if soft and hard differ."""
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
        return not_asked()
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


CHECKS = (blacklist, module_options, modules_load, sysctl, limits)
