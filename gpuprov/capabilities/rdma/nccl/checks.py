"""Rules and checks of the part `rdma.nccl`: /etc/nccl.conf is true of this host, and nothing overrides it."""

from collections.abc import Iterable
from difflib import unified_diff

from gpuprov.capabilities.answers import APPLY
from gpuprov.capabilities.base import Change, Check, Context, Outcome, check, fail, not_asked, ok
from gpuprov.capabilities.rdma.efa.rules import installer_sha256
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.capabilities.rdma.nccl import conf
from gpuprov.capabilities.rdma.nccl.rules import has_hpcx, rules
from gpuprov.catalog import hpc
from gpuprov.catalog.rdma.nccl import CONFIG
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.host import environment
from gpuprov.facts.probes.rdma import DEVICES
from gpuprov.facts.probes.rdma.nccl import NCCL, NcclHost, Setting
from gpuprov.host_code.json_members import Json

# Values with which NCCL uses sockets in the place of RDMA:
# https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
OFF = {"NCCL_IB_DISABLE": "1", "NCCL_NET": "Socket"}
Ctx = Context[Rdma]
EXPORT_PROBES = (NCCL, DEVICES)


def effective(lines: Iterable[str]) -> dict[str, str]:
    """Return the settings that NCCL reads from a file: the first line of a name counts, and the name is everything
    before the first =."""
    settings: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition("=")
        settings.setdefault(name, value)
    return settings


def gone(value: str, names: Iterable[str]) -> list[str]:
    """Return the entries of an NCCL_IB_HCA that match no device of the host; an entry is a prefix, without = before the
    first."""
    if value.startswith("^"):
        return []
    exact = value.startswith("=")
    prefixes = tuple(names)
    entries = [entry.partition(":")[0] for entry in value.lstrip("=").split(",")]
    return [
        entry for entry in entries if not any(name == entry if exact else name.startswith(entry) for name in prefixes)
    ]


@check("rdma.nccl_file", NCCL, DEVICES, fields=("nccl", "devices"), evidence=f"cat {CONFIG}")
def file(ctx: Ctx) -> Outcome:
    """/etc/nccl.conf contains exactly what follows from the host's devices and from the spec, and no more."""
    if not ctx.fragment.nccl.manage:
        return not_asked("rdma.nccl.manage is false")
    installed = ctx.facts.get(NCCL).lines
    try:
        expected = conf.lines(ctx.fragment, ctx.facts.get(DEVICES))
    except conf.ConfError as error:
        return fail(f"{CONFIG} of this host's devices", str(error), "see rdma.devices; or rdma.nccl: {manage: false}")
    if installed == expected:
        return ok(
            f"{counted(len(expected), 'variable')}: {expected[0]}" if expected else "no variable is needed",
            "; ".join(expected),
        )
    diff = "\n".join(unified_diff(installed or (), expected, "as it is", "as it should be", lineterm="", n=0))
    change = Change(kind="file", name=CONFIG, before="; ".join(installed or ()), after="; ".join(expected), diff=diff)
    return fail("; ".join(expected), f"{CONFIG} {_describe_differences(installed, expected)}", APPLY, changes=[change])


def _describe_differences(installed: tuple[str, ...] | None, expected: tuple[str, ...]) -> str:
    if installed is None:
        return "does not exist"
    has, wants = effective(installed), effective(expected)
    missing = [f"lacks {name}" for name in wants if name not in has]
    other = [f"says {name}={has[name]}" for name in wants if name in has and has[name] != wants[name]]
    foreign = [f"also says {name}={value}" for name, value in has.items() if name not in wants]
    return ", ".join(missing + other + foreign) or "says the same in another order, or a line twice"


@check(
    "rdma.nccl_stale",
    *(NCCL, DEVICES),
    fields=("nccl",),
    evidence=f"ls /sys/class/infiniband; cat {CONFIG} /root/.nccl.conf; grep -r NCCL_ {environment.SHOWN}",
)
def stale(ctx: Ctx) -> Outcome:
    """No file of NCCL's, and no environment of logins or services, names RDMA devices that are gone or overrides
    /etc/nccl.conf."""
    state = ctx.facts.get(NCCL)
    names = [device.name for device in ctx.facts.get(DEVICES)]
    file_settings = effective(state.lines or ())
    own = [Setting(file=CONFIG, name=name, value=value) for name, value in file_settings.items()]
    for setting in [*state.others, *own]:
        lost = gone(setting.value, names) if setting.name == "NCCL_IB_HCA" else []
        if lost:
            message = (
                f"{setting.file} says NCCL_IB_HCA={setting.value}; the host has {' '.join(names) or 'no RDMA device'}"
            )
            fix = (
                f"{APPLY}"
                if setting.file == CONFIG and ctx.fragment.nccl.manage
                else f"take the line out of {setting.file}"
            )
            return fail(
                "NCCL_IB_HCA of devices that are there", message, f"{fix}: even one host by itself fails with it"
            )
    return _judge_overruled(state, file_settings, manage=ctx.fragment.nccl.manage)


def _judge_overruled(state: NcclHost, file_settings: dict[str, str], *, manage: bool) -> Outcome:
    over = [
        other
        for other in state.others
        if manage and other.name in file_settings and file_settings[other.name] != other.value
    ]
    if over:
        first = over[0]
        message = f"{first.file} says {first.name}={first.value}, which counts before {CONFIG}"
        return fail(
            f"{first.name}={file_settings[first.name]}",
            message,
            f"take the line out of {first.file}, or say it in rdma.nccl",
        )
    off = [other for other in state.others if OFF.get(other.name) == other.value and other.name not in file_settings]
    if off:
        message = (
            f"{off[0].file} says {off[0].name}={off[0].value}: NCCL leaves the RDMA devices alone, and uses sockets"
        )
        fix = f"take the line out of {off[0].file}, or say it in rdma.nccl.settings"
        return fail(f"{off[0].name} not set", message, fix)
    lost = [
        other for other in state.others if other.name == "NCCL_CONF_FILE" and not state.files.get(other.value, True)
    ]
    if lost:
        message = f"{lost[0].file} says NCCL_CONF_FILE={lost[0].value}, which is not there"
        return fail("NCCL_CONF_FILE of a file that is there", message, f"take the line out of {lost[0].file}")
    return ok(
        f"{counted(len(state.others), 'other setting')} of NCCL, none conflicting"
        if state.others
        else "nothing but /etc/nccl.conf"
    )


@check(
    "rdma.nccl_gid",
    DEVICES,
    fields=("nccl",),
    evidence="grep . /sys/class/infiniband/*/ports/*/gids/* /sys/class/infiniband/*/ports/*/gid_attrs/types/*",
)
def gid(ctx: Ctx) -> Outcome:
    """Each port has a GID of the type and address by which NCCL is configured to choose it."""
    options, ports = ctx.fragment.nccl, conf.choosing(ctx.fragment, ctx.facts.get(DEVICES))
    if not options.manage or options.gid == "none" or not ports:
        return not_asked("NCCL chooses no RoCE GID here")
    without = [place for place, port in ports if not conf.indices(options, port.gids)]
    expected = f"a GID of {conf.describe_gid(options)}"
    if without:
        fix = "ip addr show: its network interface must be up and have that address; or correct rdma.nccl.addr_range"
        return fail(expected, f"none on {', '.join(without)}", fix)
    shown = [f"{place}: {conf.indices(options, port.gids)[0]}" for place, port in ports]
    return ok("; ".join(shown), expected)


@check(
    "rdma.nccl_parts", NCCL, fields=("nccl",), evidence="ls -l TOPO_FILE; ldconfig -p | grep libnccl-net; ip -br link"
)
def parts(ctx: Ctx) -> Outcome:
    """Everything that the settings name is present: the topology file, the network plugin (SHARP's), the interfaces."""
    options = ctx.fragment.nccl
    return _judge_library(ctx, options.library, options.socket_ifname)


@check(
    "rdma.nccl_named",
    NCCL,
    fields=("nccl",),
    moment="preflight",
    evidence="ls -l TOPO_FILE; ldconfig -p | grep libnccl-net; ip -br link",
)
def named(ctx: Ctx) -> Outcome:
    """Everything that the settings name is present before anything is changed, except what apply brings: the plugin of
    AWS's installer or of `hpc`, IPoIB's interfaces, and those of DOCA-OFED's drivers."""
    block = ctx.fragment
    of_efa = installer_sha256(block) and block.fabric == "efa"
    of_hpcx = has_hpcx(ctx.host) and block.nccl.sharp and block.nccl.library == hpc.PLUGIN
    library = "" if of_efa or of_hpcx else block.nccl.library
    come = block.ipoib or block.own_stack == "doca-ofed"
    return _judge_library(ctx, library, () if come else block.nccl.socket_ifname)


def _judge_library(ctx: Ctx, library: str, netdevs: tuple[str, ...]) -> Outcome:
    options, state = ctx.fragment.nccl, ctx.facts.get(NCCL)
    if not options.manage:
        return not_asked("rdma.nccl.manage is false")
    lost = [name for name in options.paths if not state.files.get(name, state.lines is None)]
    if lost:
        return fail(f"{lost[0]} is there", f"{lost[0]} is not there", "put it there, or take it out of rdma.nccl")
    if library and library not in state.plugins:
        message = f"the dynamic linker finds no {library}" + (
            f", but {', '.join(state.plugins)}" if state.plugins else ""
        )
        fix = (
            "hpc: {hpcx: {url: https://.../hpcx-v....tbz, sha256: ...}} brings nccl-rdma-sharp-plugins; or build them, "
            "with their folder in /etc/ld.so.conf.d; ldconfig"
        )
        return fail(library, message, fix)
    strange = [name for name in netdevs if name not in state.netdevs]
    if strange:
        message = f"no {', '.join(strange)}; the host has {' '.join(state.netdevs)}"
        return fail(" ".join(netdevs), message, "correct rdma.nccl.socket_ifname")
    all_named = [name for name in (options.topo_file, options.net_plugin, library, *netdevs) if name]
    return ok(" ".join(dict.fromkeys(all_named))) if all_named else not_asked("nothing is named")


def exported(facts: Facts, block: Rdma) -> dict[str, Json]:
    """Return `nccl` of a spec for the host as it is: gpuprov's file with its defaults, or else an unmanaged file."""
    try:
        same = facts.get(NCCL).lines == conf.lines(block, facts.get(DEVICES))
    except conf.ConfError:
        same = False
    return {} if same else {"manage": False}


CHECKS: tuple[Check, ...] = (file, stale, gid, parts, named)
__all__ = ["CHECKS", "EXPORT_PROBES", "exported", "rules"]
