"""What is asked of the kernel: by the `kernel` block itself and by the other capabilities, merged by declared rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

import msgspec

from gpuprov.spec.model import Fragment

ModuleName = Annotated[
    str, msgspec.Meta(pattern=r"^[A-Za-z0-9_-]+$", description="a kernel module's name: letters, digits, _ and -")
]
Scalar = (
    bool
    | int
    | Annotated[
        str, msgspec.Meta(pattern=r"^[^\s\"'\\#]*$", description="text without spaces, quotes, backslashes and #")
    ]
)
"""A module option's value, in one word: modprobe.d has no quoting that every reader of it shares."""
SysctlName = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_:/-]+)+$",
        description="a name as `sysctl -a` prints it (net.core.rmem_max)",
    ),
]
ParameterName = Annotated[
    str, msgspec.Meta(pattern=r"^[A-Za-z0-9_]+$", description="a parameter's name as `modinfo -p` prints it")
]
Word = Annotated[str, msgspec.Meta(description='text ("" for a bare word)')]
LimitName = Literal[
    "core", "data", "fsize", "locks", "memlock", "msgqueue", "nofile", "nproc", "rtprio", "sigpending", "stack"
]
"""Limits that both pam_limits and systemd know (limits.conf(5), systemd.exec(5)); of `nice` they have different ideas."""
Limit = Annotated[int, msgspec.Meta(ge=0)] | Literal["unlimited"]


class Kernel(Fragment, frozen=True):
    """Kernel command line, modules, initramfs, sysctl and limits. One owner, so that no two roles write one file."""

    command_line: dict[str, Word] = {}
    blacklist: tuple[ModuleName, ...] = ()
    module_options: dict[ModuleName, dict[ParameterName, Scalar]] = {}
    modules_load: tuple[ModuleName, ...] = ()
    sysctl: dict[SysctlName, int | str] = {}
    limits: dict[LimitName, Limit] = {}


class Contribution(msgspec.Struct, frozen=True):
    """What one capability asks of the kernel. `source` names it in messages."""

    source: str
    kernel: Kernel


class Conflict(msgspec.Struct, frozen=True):
    """Two sources want different values of one setting, and the rule for it is "must agree"."""

    setting: str
    sources: tuple[str, str]
    values: tuple[object, object]


LARGER_WINS = ("net.core.", "net.ipv4.tcp_", "vm.max_map_count", "vm.nr_hugepages", "fs.file-max", "kernel.pid_max")
"""sysctl prefixes where two integers are merged to the larger one; every other setting must agree."""


def merge(contributions: Iterable[Contribution]) -> tuple[Kernel, list[Conflict]]:
    """One Kernel from many: lists are united in order, limits and LARGER_WINS sysctls take the larger, the rest must agree."""
    conflicts: list[Conflict] = []
    owners: dict[str, str] = {}
    command_line: dict[str, str] = {}
    options: dict[str, dict[str, Scalar]] = {}
    sysctl: dict[str, int | str] = {}
    limits: dict[LimitName, Limit] = {}
    blacklist: dict[str, None] = {}
    modules: dict[str, None] = {}

    def agree(into: dict[str, object], new: Mapping[str, object], room: str, source: str) -> None:
        for key, value in new.items():
            setting = f"{room}.{key}"
            if key in into and _same(into[key], value):
                continue
            if key in into:
                larger = _larger(room, key, into[key], value)
                if larger is None:
                    conflicts.append(Conflict(setting, (owners[setting], source), (into[key], value)))
                    continue
                value = larger
            into[key] = value
            owners.setdefault(setting, source)

    for contribution in contributions:
        kernel, source = contribution.kernel, contribution.source
        agree(command_line, kernel.command_line, "command_line", source)  # type: ignore[arg-type]
        for module, values in kernel.module_options.items():
            agree(options.setdefault(module, {}), values, f"module_options.{module}", source)  # type: ignore[arg-type]
        agree(sysctl, kernel.sysctl, "sysctl", source)  # type: ignore[arg-type]
        agree(limits, kernel.limits, "limits", source)  # type: ignore[arg-type]
        blacklist.update(dict.fromkeys(kernel.blacklist))
        modules.update(dict.fromkeys(kernel.modules_load))
    merged = Kernel(
        command_line=command_line,
        blacklist=tuple(blacklist),
        module_options=options,
        modules_load=tuple(modules),
        sysctl=sysctl,
        limits=limits,
    )
    return merged, conflicts


def _same(old: object, new: object) -> bool:
    """1, "1" and true are one value to the kernel."""
    texts = [str(int(value)) if isinstance(value, bool) else str(value) for value in (old, new)]
    return texts[0] == texts[1]


def _larger(room: str, key: str, old: object, new: object) -> object | None:
    if room == "limits":
        return "unlimited" if "unlimited" in (old, new) else max(old, new)  # type: ignore[call-overload]
    if room == "sysctl" and key.startswith(LARGER_WINS) and isinstance(old, int) and isinstance(new, int):
        return max(old, new)
    return None
