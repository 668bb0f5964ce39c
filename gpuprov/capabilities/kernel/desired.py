"""Desired state of the role: gpuprov's own files, the boot entries' command line, and the state of the running
kernel."""

from collections.abc import Iterator
from typing import Any

from gpuprov.capabilities.answers import HEADER
from gpuprov.capabilities.at_boot import ABOVE, COMMON, command, unit
from gpuprov.capabilities.at_boot import files as at_boot
from gpuprov.capabilities.base import Context, Desired, Resources
from gpuprov.capabilities.kernel.machine import elsewhere, hugepage_settings
from gpuprov.capabilities.kernel.next_boot import parameters
from gpuprov.capabilities.kernel.now import IN_KIB, SERVICE_FILE, as_text, loaded_modules, sysctls
from gpuprov.capabilities.kernel.tasks import TASKS
from gpuprov.capabilities.steps import Step, hand_steps
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.host import hardware, system, virtualization
from gpuprov.facts.probes.host.family import family
from gpuprov.facts.probes.kernel import boot, initramfs
from gpuprov.facts.probes.kernel.boot import LOGIN_FILE
from gpuprov.host_code.at_boot.governor import select_differing
from gpuprov.host_code.json_members import Json
from gpuprov.host_code.running_kernel import SYSCTL_FILE
from gpuprov.resources import Absent, File, Program, Resource, Unit, role_values
from gpuprov.resources.kernel_module import MODPROBE_FILE, MODULES_FILE
from gpuprov.spec.kernel import Kernel

DRACUT_FILE = "/etc/dracut.conf.d/90-gpuprov.conf"
GRUB_FILE = "/etc/default/grub.d/90-gpuprov.cfg"
UNIT = "gpuprov-cpu-governor.service"
UNIT_FILE = f"/etc/systemd/system/{UNIT}"
MODULES = (*COMMON, "governor")
# The file that an earlier gpuprov had in their place.
OLD = f"{ABOVE}/kernel/governor.sh"
# Every file that the role may write; a file that is no longer needed is removed.
FILES = (MODPROBE_FILE, DRACUT_FILE, MODULES_FILE, SYSCTL_FILE, LOGIN_FILE, SERVICE_FILE, GRUB_FILE, UNIT_FILE)
PROGRAM = at_boot("kernel", MODULES)
GOVERNOR_FIX = "another governor, or cpu_governor: keep"
Ctx = Context[Kernel]


def words(kernel: Kernel) -> list[str]:
    """Return the command line as a bootloader takes it."""
    return [f"{key}={value}" if value else key for key, value in kernel.command_line.items()]


def texts(kernel: Kernel, *, debian: bool, dracut: bool) -> dict[str, str]:
    """Return the text of each needed file, by path."""
    made: dict[str, str] = {}
    options = [
        f"options {module} {key}={as_text(value)}"
        for module, own in kernel.module_options.items()
        for key, value in own.items()
    ]
    if lines := [*(f"blacklist {name}" for name in kernel.blacklist), *options]:
        made[MODPROBE_FILE] = _format_text(lines)
        if dracut:
            about = "# dracut takes /etc/modprobe.d along only where it builds for this host alone (hostonly)."
            made[DRACUT_FILE] = _format_text([about, f'install_items+=" {MODPROBE_FILE} "'])
    if kernel.modules_load:
        made[MODULES_FILE] = _format_text(kernel.modules_load)
    if kernel.sysctl:
        made[SYSCTL_FILE] = _format_text(f"{key} = {value}" for key, value in kernel.sysctl.items())
    if kernel.limits:
        rows = [f"{who} - {key} {value}" for key, value in kernel.limits.items() for who in ("*", "root")]
        made[LOGIN_FILE] = _format_text(['# limits.conf(5): "*" does not mean root.', *rows])
        made[SERVICE_FILE] = _format_text(
            ["[Manager]", *(_format_for_systemd(key, value) for key, value in kernel.limits.items())]
        )
    if kernel.command_line and debian:
        made[GRUB_FILE] = _format_text([f'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX {" ".join(words(kernel))}"'])
    return made


def _format_text(lines: Any) -> str:
    return HEADER + "".join(f"{line}\n" for line in lines)


def _format_for_systemd(key: str, value: object) -> str:
    suffix = "K" if key in IN_KIB else ""
    return f"DefaultLimit{key.upper()}={'infinity' if value == 'unlimited' else f'{value}{suffix}'}"


def _format_unit(governor: str) -> str:
    order = f"""
Description=CPU frequency governor {governor}
# These set governors when they start.
After=systemd-modules-load.service tuned.service power-profiles-daemon.service cpufrequtils.service cpupower.service
"""
    return unit(order, f"ExecStart={command('kernel', 'governor', 'set', governor)}")


def limits(kernel: Kernel) -> dict[str, str]:
    """Return systemd's default limits in the units in which it prints them: bytes, not KiB."""
    return {
        f"DefaultLimit{key.upper()}": "infinity"
        if value == "unlimited"
        else str(value * 1024 if key in IN_KIB else value)
        for key, value in kernel.limits.items()
    }


def missing(ctx: Ctx) -> list[str]:
    """Return parameters that the running kernel was started without."""
    running = {("", key): value for key, value in ctx.facts.get(boot.COMMAND_LINE).items()}
    lacking = {setting.key for setting in parameters(ctx.fragment) if setting.compare(running)}
    return [word for word in words(ctx.fragment) if word.partition("=")[0] in lacking]


def waits(ctx: Ctx) -> str:
    """Return why no unit can set the requested CPU frequency governor; empty if a unit can, or none is requested."""
    if ctx.fragment.cpu_governor == "keep":
        return ""
    return elsewhere(ctx) or ("" if ctx.facts.get(hardware.FREQUENCY).policies else "no CPU has a governor")


def is_debian(facts: Facts) -> bool:
    return family(facts.get(system.OS_RELEASE)) == "debian"


def boot_entries_program(facts: Facts) -> str:
    """Return the program that writes the boot entries, by its name for step boot."""
    return "update-grub" if is_debian(facts) else "grub2"


def desired(ctx: Ctx) -> Iterator[Resource]:
    """Yield the files, the unit that sets the governor at each boot with its program, and the removal of those that are
    not needed."""
    kernel, why = ctx.fragment, waits(ctx)
    governs = kernel.cpu_governor != "keep" and not why
    made = texts(kernel, debian=is_debian(ctx.facts), dracut=ctx.facts.get(initramfs.DRACUT))
    made |= {UNIT_FILE: _format_unit(kernel.cpu_governor)} if governs else {}
    program = PROGRAM if governs else {}
    yield from (File(path, text) for path, text in made.items())
    yield from (Program(path, name) for path, name in program.items())
    yield from (Absent(path) for path in (*FILES, *PROGRAM, OLD) if path not in (*made, *program))
    yield Unit(name=UNIT, enabled=governs, active=governs, waits=why, fix=GOVERNOR_FIX)


def make(ctx: Ctx) -> dict[str, Json]:
    """Return the values of the role: those of the resources; `reboot`: the reason for one."""
    kernel, container = ctx.fragment, bool(ctx.facts.get(system.CONTAINER))
    without = [] if container else missing(ctx)
    values = role_values(desired(ctx), "files", "units", "program", "absent", "on", "off")
    pages = {} if container else {policy.key: int(policy.value) for policy in hugepage_settings(kernel)}
    running = {
        "modules": [policy.kernel_name for policy in loaded_modules(kernel, container=container) if policy.loaded],
        "sysctl": {policy.key: policy.value for policy in sysctls(kernel)},
        "limits": limits(kernel),
        "hugepages": pages.get("2M", 0),
    }
    steps = [
        Step("boot", {"command_line": words(kernel), "entries": boot_entries_program(ctx.facts)}),
        Step("running_kernel", running),
    ]
    if values.pop("on"):
        slow = select_differing(ctx.facts.get(hardware.FREQUENCY).policies, kernel.cpu_governor)
        differs = " ".join(policy.name for policy in slow)
        own = {"name": UNIT, "state": "ran", "enabled": True, "program": "governor"}
        steps.append(Step("unit", {**own, "differs": differs, "fix": GOVERNOR_FIX}))
    return {
        **values,
        "reboot": f"the running kernel was started without {' '.join(without)}" if without else "",
        "tasks": hand_steps(steps, TASKS),
    }


RESOURCES = Resources(
    desired,
    lambda _host, _block: (*FILES, *PROGRAM, OLD),
    (hardware.FREQUENCY, initramfs.DRACUT, system.CONTAINER, system.OS_RELEASE, virtualization.MACHINE),
    units=lambda _host, _block: (UNIT,),
    proves=dict.fromkeys(("files", "enabled", "active"), ("cpu_governor",)),
)
DESIRED = Desired((boot.COMMAND_LINE, *RESOURCES.probes), make)
