"""Requirements of the kernel: from the `kernel` block itself and the other capabilities, merged by declared rules."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

import msgspec

from gpuprov.host_code.json_members import Json
from gpuprov.spec.described import describe
from gpuprov.spec.model import Fragment

ModuleName = Annotated[str, describe("a kernel module's name: letters, digits, _ and -", pattern=r"^[A-Za-z0-9_-]+$")]
# A module option's value, in one word: modprobe.d has no quoting that all its readers support.
Scalar = (
    bool
    | int
    | Annotated[
        str, msgspec.Meta(pattern=r"^[^\s\"'\\#]*$", description="text without spaces, quotes, backslashes and #")
    ]
)
SysctlName = Annotated[
    str,
    describe("a name as `sysctl -a` prints it (net.core.rmem_max)", pattern=r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_:/-]+)+$"),
]
ParameterName = Annotated[str, describe("a parameter's name as `modinfo -p` prints it", pattern=r"^[A-Za-z0-9_]+$")]
Word = Annotated[str, describe('text ("" for a bare word)')]
# Limits that both pam_limits and systemd know (limits.conf(5), systemd.exec(5)); they interpret `nice` differently.
LimitName = Literal[
    "core", "data", "fsize", "locks", "memlock", "msgqueue", "nofile", "nproc", "rtprio", "sigpending", "stack"
]
Limit = Annotated[int, msgspec.Meta(ge=0)] | Literal["unlimited"]
HugepageSize = Literal["2M", "1G"]
# Sizes in KiB, as /sys/kernel/mm/hugepages names them.
HUGEPAGE_KIB: dict[str, int] = {"2M": 2048, "1G": 1048576}
HUGEPAGES_SYSCTL, NUMA_SYSCTL = "vm.nr_hugepages", "kernel.numa_balancing"


class Kernel(Fragment, frozen=True):
    """Kernel command line, modules, initramfs, sysctl, limits, hugepages, CPU governor. One owner: no two roles write
    one file.

    Requirements of other capabilities arrive merged. A file without any setting does not exist.
    """

    command_line: Annotated[
        dict[str, Word], describe("parameters that the kernel is started with; an empty value makes a bare word")
    ] = {}
    blacklist: Annotated[tuple[ModuleName, ...], describe("modules that neither udev nor an alias may load")] = ()
    module_options: Annotated[
        dict[ModuleName, dict[ParameterName, Scalar]],
        describe("by module, its parameters and their values; true is written as 1"),
    ] = {}
    modules_load: Annotated[tuple[ModuleName, ...], describe("modules to load at boot")] = ()
    modules_built: Annotated[
        tuple[ModuleName, ...],
        describe(
            "modules from outside the kernel (lustre, wekafsio, gdrdrv) that the kernel of the next boot must have, "
            "built for it. Whoever brings them builds them; gpuprov says beforehand where one is missing"
        ),
    ] = ()
    sysctl: Annotated[dict[SysctlName, int | str], describe("kernel settings by name, for now and for every boot")] = {}
    limits: Annotated[
        dict[LimitName, Limit],
        describe(
            "by item of limits.conf(5), the soft and hard limit of login sessions and of systemd services. A "
            "number has the unit of limits.conf(5), KiB for memlock; or unlimited"
        ),
    ] = {}
    hugepages: Annotated[
        dict[HugepageSize, Annotated[int, msgspec.Meta(ge=1)]],
        describe(
            "by size (2M, 1G), how many pages: of 2M exactly, by sysctl; of 1G at least, on the command line,"
            " which takes a reboot"
        ),
    ] = {}
    cpu_governor: Annotated[
        Literal["keep", "performance", "powersave", "schedutil", "ondemand", "conservative"],
        describe(
            "the frequency governor of every CPU, set again at boot; keep leaves it alone. Virtual machines have none"
        ),
    ] = "keep"
    numa_balancing: Annotated[
        Literal["keep", "enabled", "disabled"],
        describe(
            "whether the kernel moves memory between NUMA nodes by itself (kernel.numa_balancing); keep leaves it alone"
        ),
    ] = "keep"


class Contribution(msgspec.Struct, frozen=True):
    """The requirements of one capability. `source` names it in messages."""

    source: str
    kernel: Kernel


class Conflict(msgspec.Struct, frozen=True):
    """Two sources set different values of one setting that must agree."""

    setting: str
    sources: tuple[str, str]
    values: tuple[object, object]


# sysctl prefixes for which the larger of two integers wins; every other setting must agree.
LARGER_WINS = ("net.core.", "net.ipv4.tcp_", "vm.max_map_count", "vm.nr_hugepages", "fs.file-max", "kernel.pid_max")


def add_implied(kernel: Kernel) -> Kernel:
    """Return the sysctls and parameters that implement hugepages and NUMA balancing.

    vm.nr_hugepages counts pages of the default size.
    """
    # Pages of 1G are reserved on the kernel command line, before memory is fragmented:
    # https://docs.kernel.org/admin-guide/mm/hugetlbpage.html
    sysctl: dict[str, int | str] = {}
    if "2M" in kernel.hugepages:
        sysctl[HUGEPAGES_SYSCTL] = kernel.hugepages["2M"]
    if kernel.numa_balancing != "keep":
        sysctl[NUMA_SYSCTL] = int(kernel.numa_balancing == "enabled")
    giant = kernel.hugepages.get("1G")
    return Kernel(command_line={"hugepagesz": "1G", "hugepages": str(giant)} if giant else {}, sysctl=sysctl)


def merge(contributions: Iterable[Contribution]) -> tuple[Kernel, list[Conflict]]:
    """Merge many Kernels into one: lists are united in order, limits, hugepages and LARGER_WINS sysctls take the
    larger, the rest must agree.

    If one source leaves the CPU governor or NUMA balancing alone (`keep`), another may set it.
    """
    merging = _Merging()
    lists: dict[str, dict[str, None]] = {name: {} for name in ("blacklist", "modules_load", "modules_built")}
    options: dict[str, dict[str, object]] = {}
    for contribution in contributions:
        kernel, source = contribution.kernel, contribution.source
        for name in ("command_line", "sysctl", "limits", "hugepages"):
            merging.add(name, getattr(kernel, name), source)
        for module, values in kernel.module_options.items():
            options[module] = merging.add(f"module_options.{module}", values, source)
        settings = {"cpu_governor": kernel.cpu_governor, "numa_balancing": kernel.numa_balancing}
        merging.add("", {key: value for key, value in settings.items() if value != "keep"}, source)
        for name, names in lists.items():
            names.update(dict.fromkeys(getattr(kernel, name)))
    merged = Kernel(
        **{name: merging[name] for name in ("command_line", "sysctl", "limits", "hugepages")},  # type: ignore[arg-type]
        **{name: tuple(names) for name, names in lists.items()},  # type: ignore[arg-type]
        module_options=options,  # type: ignore[arg-type]
        **merging[""],  # type: ignore[arg-type]
    )
    more = add_implied(merged)
    command_line = merging.add("command_line", more.command_line, "kernel.hugepages")
    # Last, whoever else has said them: the kernel reads a number of pages after their size.
    for key in more.command_line:
        command_line[key] = command_line.pop(key)
    merging.add("sysctl", more.sysctl, "kernel's hugepages or numa_balancing")
    return merged, merging.conflicts


class _Merging:
    """Settings by room (`sysctl`; empty for a field of the block itself), each with the source that set it first."""

    def __init__(self) -> None:
        self.conflicts: list[Conflict] = []
        self._rooms: dict[str, dict[str, object]] = {}
        self._owners: dict[str, str] = {}

    def __getitem__(self, room: str) -> dict[str, object]:
        return self._rooms.setdefault(room, {})

    def add(self, room: str, new: Mapping[str, Json], source: str) -> dict[str, object]:
        """Add a source's settings to a room, and return the room. What does not agree is a conflict."""
        into = self[room]
        for key, value in new.items():
            setting = f"{room}.{key}" if room else key
            if key not in into:
                into[key], self._owners[setting] = value, source
            elif not is_same(into[key], value):
                larger = choose_larger(room, key, into[key], value)
                if larger is None:
                    owners = (self._owners[setting], source)
                    self.conflicts.append(Conflict(setting, owners, (into[key], value)))
                else:
                    into[key] = larger
        return into


def is_same(old: object, new: object) -> bool:
    """True if both are one value to the kernel, as 1, "1" and true are."""
    texts = [str(int(value)) if isinstance(value, bool) else str(value) for value in (old, new)]
    return texts[0] == texts[1]


def choose_larger(room: str, key: str, old: object, new: object) -> object | None:
    if room == "hugepages" and isinstance(old, int) and isinstance(new, int):
        return max(old, new)
    if room == "limits":
        return "unlimited" if "unlimited" in (old, new) else max(old, new)  # type: ignore[call-overload]
    if room == "sysctl" and key.startswith(LARGER_WINS) and isinstance(old, int) and isinstance(new, int):
        return max(old, new)
    return None
