"""The kernel's current configuration: blacklists, module options, modules, sysctls, limits. What is wanted, and its
checks."""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec

from gpuprov.capabilities.answers import APPLY
from gpuprov.capabilities.base import Context, Outcome, not_asked
from gpuprov.capabilities.compared import Group, compared, keep_out
from gpuprov.core.safe_parse import is_whole
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.host import system, systemd
from gpuprov.facts.probes.kernel import boot, modules
from gpuprov.facts.probes.kernel.limits import LIMIT_SOURCES
from gpuprov.facts.probes.kernel.modules import underscored
from gpuprov.host_code.lasting import BOOT
from gpuprov.host_code.running_kernel import SYSCTL_FILE
from gpuprov.resources import KernelModule, Modules, Setting
from gpuprov.resources.kernel_module import MODPROBE_FILE, MODULES_FILE
from gpuprov.spec.kernel import Kernel, Scalar

# Limits that limits.conf(5) counts in KiB, and systemd in bytes.
IN_KIB = ("core", "data", "fsize", "memlock", "stack")
SERVICE_FILE = "/etc/systemd/system.conf.d/90-gpuprov.conf"
# Words for a limit that differs: of login sessions, and of services.
WORDS = {of: f"{of} {{key}}={{before}}" for of in ("login", "service")}
# The device of a value for the next boot.
KEPT = "next boot"
Ctx = Context[Kernel]


def as_text(value: Scalar) -> str:
    """Return a module option as modprobe.d writes it: true is 1."""
    return str(int(value)) if isinstance(value, bool) else str(value)


def listed(values: Mapping[str, str]) -> str:
    return " ".join(f"{key}={value}" if value else key for key, value in values.items())


@compared("kernel.blacklist", modules.MODPROBE, fields=("blacklist",))
def blacklist(ctx: Ctx) -> Group | Outcome:
    """Every module that should stay out is blacklisted in modprobe's merged configuration."""
    return keep_out(ctx.facts, ctx.fragment.blacklist) if ctx.fragment.blacklist else not_asked()


@compared("kernel.module_options", modules.MODPROBE, fields=("module_options",))
def module_options(ctx: Ctx) -> Group | Outcome:
    """Every module option has the wanted value in modprobe's merged configuration."""
    declared = ctx.fragment.module_options
    if not declared:
        return not_asked()
    texts = {name: {key: as_text(value) for key, value in options.items()} for name, options in declared.items()}
    known = ctx.facts.get(modules.MODPROBE)
    here = [
        key
        for name, options in texts.items()
        for key in options.keys() - known.list_outdone(name, options)
        if known.options.get(underscored(name), {}).get(key) != options[key]
    ]
    return Group(
        tuple(
            KernelModule(name=name, options=options, label=name, outdone=known.list_outdone(name, options))
            for name, options in texts.items()
        ),
        modules=Modules(options=known.options),
        expected="; ".join(f"{name}: {listed(options)}" for name, options in texts.items()),
        fix="; ".join([*[f"{APPLY} writes {MODPROBE_FILE}"] * bool(here), *known.list_moves(texts)]),
    )


def loaded_modules(kernel: Kernel, *, container: bool) -> tuple[KernelModule, ...]:
    """Return the modules that are loaded at each boot; in a container, what is loaded now is the machine's."""
    loaded = None if container else True
    names = [underscored(name) for name in kernel.modules_load]
    return tuple(
        KernelModule(name=name, loaded=loaded, at_boot=True, fix=f"modprobe {name}; dmesg | tail") for name in names
    )


@compared(
    "kernel.modules_load",
    *(modules.LOADED, modules.BUILT_IN, boot.MODULES_LOAD, modules.MODPROBE, system.CONTAINER),
    fields=("modules_load",),
)
def modules_load(ctx: Ctx) -> Group | Outcome:
    """Modules to load at boot are configured, and nothing keeps them out then; on a host with its own kernel they are
    also loaded now."""
    if not ctx.fragment.modules_load:
        return not_asked()
    kind, facts = ctx.facts.get(system.CONTAINER), ctx.facts
    desired = loaded_modules(ctx.fragment, container=bool(kind))
    names = " ".join(module.kernel_name for module in desired)
    running = () if kind else (*facts.get(modules.LOADED), *facts.get(modules.BUILT_IN))
    return Group(
        desired,
        modules=Modules(loaded=frozenset(running), at_boot=facts.get(boot.MODULES_LOAD)),
        expected=names,
        right=f"configured: {names}",
        files={MODULES_FILE: names},
        beside=tuple(_find_kept_out(facts, [module.kernel_name for module in desired])),
        fix=f"{APPLY}; grep -rnE 'blacklist|install' /etc/modprobe.d /run/modprobe.d /usr/lib/modprobe.d, for what "
        "keeps a module out",
    )


def _find_kept_out(facts: Facts, names: Iterable[str]) -> Iterator[str]:
    """Yield what keeps modules out at a boot: systemd loads none that modprobe's configuration blacklists, and runs its
    command in place of one."""
    # https://www.freedesktop.org/software/systemd/man/latest/modules-load.d.html
    known, built_in = facts.get(modules.MODPROBE), facts.get(modules.BUILT_IN)
    for name in names:
        if name in built_in:
            continue
        if name in known.blacklist and not known.is_brief("blacklist", name):
            yield f"{name} is blacklisted ({known.show_places('blacklist', name)}), so that no boot loads it"
        elif modules.loads_nothing(known.install.get(name, "")) and not known.is_brief("install", name):
            yield (
                f"install {name} {known.install[name]} ({known.show_places('install', name)}), so that no boot loads it"
            )


def sysctls(kernel: Kernel) -> tuple[Setting, ...]:
    """Return the sysctls, as they should be now."""
    return tuple(
        Setting(kind="sysctl", name=key, key=key, value=" ".join(str(value).split()))
        for key, value in kernel.sysctl.items()
    )


@compared("kernel.sysctl", boot.SYSCTL, boot.SYSCTL_AT_BOOT, fields=("sysctl",), until=BOOT)
def sysctl(ctx: Ctx) -> Group | Outcome:
    """Every sysctl has the wanted value now, and no file after gpuprov's sets another at the next boot."""
    if not ctx.fragment.sysctl:
        return not_asked()
    expected, now, kept = sysctls(ctx.fragment), ctx.facts.get(boot.SYSCTL), ctx.facts.get(boot.SYSCTL_AT_BOOT)
    values = {("", key): value for key, value in now.items()}
    for setting in expected:
        if setting.key in kept:
            value, path = kept[setting.key]
            values[KEPT, setting.key] = value if value == setting.value else f"{value} ({path})"
    right = [setting for setting in expected if not setting.compare(values)]
    after = {key for key, (_, path) in kept.items() if os.path.basename(path) > os.path.basename(SYSCTL_FILE)}
    words = "right now, but not kept: {values}"
    later = [
        msgspec.structs.replace(each, device=KEPT, moment="next-boot", words=words, outdone=each.key in after)
        for each in right
    ]
    listing = listed({setting.key: setting.value for setting in expected})
    others = {
        f"take {setting.key} out of {kept[setting.key][1]}"
        for setting in expected
        if setting.key in kept and kept[setting.key][0] != setting.value and kept[setting.key][1] != SYSCTL_FILE
    }
    fix = "; ".join([*sorted(others), f"{APPLY}; if it stays, the kernel rounds it: ask for that"])
    return Group((*expected, *later), values, expected=listing, fix=fix)


def _convert_limit(item: str, value: str) -> str:
    """Return a limit of systemd's in the unit of limits.conf(5)."""
    if item in IN_KIB and is_whole(value):
        return str(int(value) // 1024) if int(value) % 1024 == 0 else f"{value} bytes"
    return value.replace("infinity", "unlimited")


def service_limits(facts: Facts, keys: Iterable[str]) -> dict[str, str]:
    """Return systemd's limits in the units of limits.conf; both if soft and hard differ."""
    defaults = facts.get(systemd.DEFAULT_LIMITS)
    return {
        key: boot.soft_and_hard(
            _convert_limit(key, defaults.get(f"{key}soft", defaults[key])), _convert_limit(key, defaults[key])
        )
        for key in keys
        if key in defaults
    }


def limit_settings(kernel: Kernel, outdone: Collection[tuple[str, str]]) -> tuple[Setting, ...]:
    """Return each limit, of login sessions and of services, in the units of limits.conf(5). outdone: those that files
    of others decide."""
    return tuple(
        Setting(
            kind=f"{of} limits",
            device=of,
            key=key,
            name=f"{of} {key}",
            value=str(value),
            words=WORDS[of],
            outdone=(of, key) in outdone,
        )
        for of in WORDS
        for key, value in kernel.limits.items()
    )


def _list_outdone(facts: Facts) -> Iterator[tuple[str, str]]:
    """Yield the limits, of login sessions and of services, that files after gpuprov's set."""
    logins = facts.get(boot.LOGIN_LIMITS)
    yield from (("login", key) for key in logins if logins.find_later(key))
    for name, (_, path) in facts.get(LIMIT_SOURCES).services.items():
        if os.path.basename(path) > os.path.basename(SERVICE_FILE):
            yield "service", name.removeprefix("DefaultLimit").lower()


@compared("kernel.limits", boot.LOGIN_LIMITS, systemd.DEFAULT_LIMITS, LIMIT_SOURCES, fields=("limits",))
def limits(ctx: Ctx) -> Group | Outcome:
    """Each limit holds for login sessions (pam_limits), also of root and of groups with lines of their own, and for
    services (systemd). Lower limits of single users are shown."""
    if not ctx.fragment.limits:
        return not_asked()
    expected = limit_settings(ctx.fragment, {*_list_outdone(ctx.facts)})
    login, services = ctx.facts.get(boot.LOGIN_LIMITS), service_limits(ctx.facts, ctx.fragment.limits)
    values = {("login", key): value for key, value in login.items()}
    declared: dict[str, str] = {key: str(value) for key, value in ctx.fragment.limits.items()}
    lower = [text for key, value in declared.items() for text in login.list_lower(key, value)]
    users = [text for key, value in declared.items() for text in login.list_lower(key, value, users=True)]
    return Group(
        expected,
        values | {("service", key): value for key, value in services.items()},
        expected=listed(declared),
        right="; but ".join([listed(declared), *users]),
        beside=tuple(f"login of {text}" for text in lower),
        fix="; ".join(
            [f"{APPLY}; running services keep their limits until restarted", *_list_lines_out(login, declared)]
        ),
    )


def _list_lines_out(login: boot.LoginLimits, declared: Mapping[str, str]) -> Iterator[str]:
    """Yield what is to be taken out of files of others, which outdo gpuprov's: later ones, and limits of single
    users."""
    for (who, key), path in login.places.items():
        value = declared.get(key, "")
        lower = who != "*" and login.list_lower(key, value)
        other = who == "*" and login.find_later(key) and login[key] != value
        if value and path and (other or any(text.startswith(f"{who} has") for text in lower or ())):
            yield f"take {key} of {who} out of {path}"


CHECKS = (blacklist, module_options, modules_load, sysctl, limits)
