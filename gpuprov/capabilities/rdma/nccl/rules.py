"""Rules for `rdma.nccl` that hold on any host."""

import ipaddress
from collections.abc import Iterable

from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.capabilities.rdma.nccl import topology
from gpuprov.capabilities.rdma.nccl.fragment import Nccl
from gpuprov.catalog import hpc
from gpuprov.catalog.rdma import nccl as catalogue
from gpuprov.spec.model import HostSpec
from gpuprov.spec.problem import Path, Problem, report_under

HERE: Path = ("rdma", "nccl")
ROCE = ("gid", "addr_family", "roce_version", "addr_range")


_problem = report_under(*HERE)


def iwarp(block: Rdma) -> bool:
    """Return whether the spec asks for iWARP, over which NCCL cannot connect."""
    soft = block.fabric == "soft" and block.soft.driver == "siw"
    return soft or block.fabric == "iwarp" or (block.fabric == "erdma" and block.erdma.compat_mode is False)


def rules(host: HostSpec, block: Rdma) -> Iterable[Problem]:
    """Yield every problem of `rdma.nccl`."""
    nccl, default = block.nccl, Nccl()
    changed = [str(key) for key in Nccl.__struct_fields__ if getattr(nccl, key) != getattr(default, key)]
    if not nccl.manage:
        for key in changed:
            if key != "manage":
                yield _problem(key, "has no effect: manage is false", "leave one of the two out")
        return
    roce = [key for key in changed if key in ROCE]
    if roce and (block.fabric in ("infiniband", "efa") or iwarp(block)):
        of_plugin = "the plugin for EFA finds its devices itself"
        why = {"infiniband": "InfiniBand needs no GID", "efa": of_plugin}.get(
            block.fabric, "NCCL does not use iWARP devices"
        )
        yield _problem(roce[0], f"has no effect: {why}", "leave it out")
    if nccl.gid == "none" and len(roce) > 1:
        yield _problem(
            next(key for key in roce if key != "gid"), "has no effect: gid is none", "gid: automatic, or index"
        )
    if nccl.sharp and nccl.net_plugin == "none":
        yield _problem("net_plugin", "is none, and sharp is a plugin", "sharp: false, or leave net_plugin out")
    if nccl.sharp and block.fabric != "infiniband":
        message = f"is true, and rdma.fabric is {block.fabric}: SHARP is InfiniBand switches'"
        yield _problem("sharp", message, "fabric: infiniband, or leave it out")
    elif nccl.sharp:
        yield from _check_against_sharp(nccl)
        yield from _check_sharp_plugin(nccl, hpcx=has_hpcx(host))
    yield from topology.rules(block)
    yield from _check_range(nccl)
    yield from _check_settings(block)


def _check_against_sharp(nccl: Nccl) -> Iterable[Problem]:
    """Yield settings by which NCCL does not load a plugin, or uses no algorithm of SHARP's."""
    network, algorithms = (str(nccl.settings.get(name, "")) for name in ("NCCL_NET", "NCCL_ALGO"))
    if network.upper() in catalogue.OWN_NETWORKS:
        message = f"is {network}, NCCL's own network, and sharp is a plugin's"
        yield _problem(("settings", "NCCL_NET"), message, "sharp: false, or leave NCCL_NET out")
    of_switches = any(name in algorithms.casefold() for name in catalogue.SWITCH_ALGORITHMS)
    if algorithms and not algorithms.startswith("^") and ":" not in algorithms and not of_switches:
        message = f"is {algorithms}, and sharp is used by CollnetDirect, CollnetChain and NVLS"
        yield _problem(("settings", "NCCL_ALGO"), message, "sharp: false, or leave NCCL_ALGO out")


def _check_sharp_plugin(nccl: Nccl, *, hpcx: bool) -> Iterable[Problem]:
    """Yield a plugin that is not HPC-X's, or none that anything brings."""
    if not nccl.net_plugin and not hpcx:
        message = "is true, and its plugin comes with HPC-X alone, or you build it"
        fix = (
            "hpc: {hpcx: {url: https://.../hpcx-v....tbz, sha256: ...}}; or net_plugin: NAME, of the one that you build"
        )
        yield _problem("sharp", message, fix, warning=True)
    ours = nccl.library == hpc.PLUGIN or nccl.net_plugin.startswith(f"{hpc.LINK}/")
    if nccl.net_plugin not in ("", "none") and hpcx and not ours:
        loaded = nccl.library or nccl.net_plugin
        message = f"is {nccl.net_plugin}: NCCL loads {loaded}, and SHARP is in HPC-X's {hpc.PLUGIN}"
        yield _problem("net_plugin", message, "leave net_plugin out, or sharp: false")


def has_hpcx(host: HostSpec) -> bool:
    """True if the spec asks for HPC-X."""
    return getattr(host.capabilities.get("hpc"), "mpi", "") == "hpcx"


def _check_range(nccl: Nccl) -> Iterable[Problem]:
    if not nccl.addr_range:
        return
    try:
        network = ipaddress.ip_network(nccl.addr_range)
    except ValueError as error:
        yield _problem("addr_range", f'is "{nccl.addr_range}": {error}', 'allowed: a network, "192.168.4.0/24"')
        return
    family = "ipv4" if network.version == 4 else "ipv6"
    if family != nccl.addr_family:
        yield _problem(
            "addr_range", f'is "{nccl.addr_range}", and addr_family is {nccl.addr_family}', f"addr_family: {family}"
        )


def _check_settings(block: Rdma) -> Iterable[Problem]:
    for name, value in block.nccl.settings.items():
        if name in catalogue.FIELDS:
            field = catalogue.FIELDS[name]
            fix = (
                f"rdma.nccl.{field}"
                if field and " " not in field
                else "take it out: it follows from the devices; rdma.devices chooses them"
            )
            yield _problem(("settings", name), f"has {name}, which gpuprov writes itself", fix)
        elif name == "NCCL_CONF_FILE":
            yield _problem(("settings", name), f"has {name}, which NCCL reads of the environment alone", "take it out")
        elif near := catalogue.find_nearest(name):
            yield _problem(
                ("settings", name),
                f"has {name}, which NCCL's documentation does not",
                f"did you mean {near}?",
                warning=True,
            )
        if (
            name == "NCCL_PROTO"
            and block.fabric == "erdma"
            and "LL128" in str(value).upper()
            and not str(value).startswith("^")
        ):
            message = f"forces LL128 ({value}): with a wrong MTU on any host, eRDMA corrupts its data"
            fix = "leave NCCL_PROTO out; rdma.erdma_mtu proves the MTU of each host"
            yield _problem(("settings", name), message, fix, warning=True)
