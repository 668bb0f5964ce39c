"""`kernel`: the one owner of command line, modprobe.d, modules-load.d, initramfs, sysctl, limits, hugepages and CPU
frequency."""

import re
from collections.abc import Iterable

from gpuprov.capabilities.at_boot import carried
from gpuprov.capabilities.base import Capability
from gpuprov.capabilities.kernel import machine, next_boot, now, preflight
from gpuprov.capabilities.kernel.desired import DESIRED, MODULES, RESOURCES, boot_entries_program
from gpuprov.capabilities.kernel.limits_kept import limits_kept
from gpuprov.capabilities.kernel.now import listed, service_limits
from gpuprov.capabilities.kernel.tasks import TASKS
from gpuprov.core.safe_parse import is_whole
from gpuprov.facts.probes.base import Facts, ProbeFailed
from gpuprov.facts.probes.host import hardware, systemd
from gpuprov.facts.probes.kernel import boot
from gpuprov.facts.probes.kernel.modules import underscored
from gpuprov.spec.build import convert
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import Fragment, HostSpec
from gpuprov.spec.overrides import Room
from gpuprov.spec.problem import Problem

__all__ = ["CAPABILITY", "export", "listed", "rules"]


def rules(_host: HostSpec, kernel: Kernel) -> Iterable[Problem]:
    for key, value in kernel.command_line.items():
        place = ("kernel", "command_line", key)
        if re.search(r"[\s\"'\\$`;&|<>]", key + value):
            message = f'kernel.command_line: "{key}={value}" has a space, a quote or a shell character'
            yield Problem(path=place, message=message, fix="give one parameter per key")
        elif not key or "=" in key:
            name, _, after = key.partition("=")
            message = f'kernel.command_line: the key is "{key}"'
            yield Problem(
                path=place, message=message, fix=f'write the name as the key: {name or "NAME"}: "{after or value}"'
            )
    both = {underscored(n) for n in kernel.blacklist} & {underscored(n) for n in kernel.modules_load}
    for name in sorted(both):
        message = f'"{name}" is both blacklisted and loaded at boot'
        yield Problem(
            path=("kernel", "modules_load"),
            message=message,
            fix="leave it out of kernel.modules_load, or of what keeps it out (kernel.blacklist, nouveau.modules)",
        )
    size = kernel.command_line.get("default_hugepagesz", "2M")
    if "2M" in kernel.hugepages and size not in ("2M", "2048K"):
        message = (
            "kernel.hugepages asks for 2M, which sysctl sets in pages of the default size, and "
            f"default_hugepagesz is {size}"
        )
        fix = "take default_hugepagesz out of kernel.command_line, or 2M out of kernel.hugepages"
        yield Problem(path=("kernel", "hugepages", "2M"), message=message, fix=fix)


def export(facts: Facts) -> Fragment | None:
    """Return the settings without another owner: gpuprov's sysctls, limits that logins and services share, and the
    governor of gpuprov's unit. Blacklists and module options are exported by the capabilities that contribute them;
    command line and modules-load are not exported."""
    sysctls = {key: int(value) if is_whole(value) else value for key, value in facts.get(boot.SYSCTL_FILES).items()}
    login = facts.get(boot.LOGIN_LIMITS)
    both = {key: value for key, value in service_limits(facts, login).items() if login[key] == value}
    state = facts.get(hardware.FREQUENCY)
    governor = (
        state.governor
        if state.file == "enabled" and {policy.governor for policy in state.policies} == {state.governor}
        else ""
    )
    fields = {"sysctl": sysctls, "limits": {k: int(v) if is_whole(v) else v for k, v in both.items()}}
    fragment, findings = convert(fields | ({"cpu_governor": governor} if governor else {}), Kernel)
    if findings:
        raise ProbeFailed(findings[0][1])
    return fragment if sysctls or both or governor else None


# A rebuilt initramfs and the old one exist together while it is written: 40 to 90 MiB with GPU firmware inside.
ROOM = Room(path="/boot", mib=100)

CAPABILITY = Capability(
    name="kernel",
    summary="kernel command line, modules, initramfs, sysctl, limits, hugepages and CPU governor, owned in one place",
    fragment=Kernel,
    checks=preflight.CHECKS + now.CHECKS + next_boot.CHECKS + machine.CHECKS + (limits_kept,),
    rules=rules,
    export=export,
    export_probes=(boot.SYSCTL_FILES, boot.LOGIN_LIMITS, systemd.DEFAULT_LIMITS, hardware.FREQUENCY),
    driverless=True,
    follows=("nvidia_driver", "nvidia_absent"),  # an initramfs may hold its modules
    room=ROOM,
    tasks=TASKS,
    desired=DESIRED,
    resources=RESOURCES,
    taken_away={},
    pruned=lambda _host, facts: {"entries": boot_entries_program(facts)},
    until_boot="sysctl values, hugepages and CPU governors",
    carried=carried(MODULES),
)
