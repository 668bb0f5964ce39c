"""Checks made before anything is changed: packages of the stack, kernel modules, network interfaces, a free port."""

from gpuprov.capabilities.base import Context, Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.compared import find_missing
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.capabilities.rdma.soft import interfaces
from gpuprov.catalog import rdma as catalogue
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.host.family import family, words
from gpuprov.facts.probes.rdma.surroundings import HOST, PACKAGES

Ctx = Context[Rdma]


def wanted_packages(ctx: Ctx) -> tuple[str, ...]:
    """Return the packages that this fabric's inbox stack needs on this host; none if another stack brings its own."""
    kind = family(ctx.facts.get(system.OS_RELEASE))
    if ctx.fragment.own_stack != "inbox" or kind is None:
        return ()
    return catalogue.list_packages(kind, *_list_keys(ctx))


def _list_keys(ctx: Ctx) -> tuple[str, ...]:
    return ("all", ctx.fragment.fabric, *(("opensm",) if ctx.host.name in ctx.fragment.opensm.hosts else ()))


@check("rdma.packages", PACKAGES, system.OS_RELEASE, fields=("stack",), evidence="dpkg -l rdma-core; rpm -q rdma-core")
def packages(ctx: Ctx) -> Outcome:
    """The inbox stack's packages for this fabric are installed completely."""
    required, installed = wanted_packages(ctx), ctx.facts.get(PACKAGES)
    if not required:
        return not_asked(f"the stack is {ctx.fragment.own_stack}")
    kind = family(ctx.facts.get(system.OS_RELEASE))
    if lacking := catalogue.list_unknown(kind, *_list_keys(ctx)) if kind else ():
        message = f"no package names are known for {' or '.join(lacking)} on {ctx.facts.get(system.OS_RELEASE).name}"
        return fail(" ".join(required), message, f"another host for {lacking[0]}")
    broken = [name for name in required if name in installed and not installed[name].whole]
    manager_words = words(ctx.facts.get(system.OS_RELEASE))
    absent = " ".join(name for name in required if name not in installed)
    if missing := find_missing(required, installed, f"gpuprov apply, or {manager_words.install} {absent}"):
        return missing
    if broken:
        return fail(" ".join(required), f"half-installed: {' '.join(broken)}", manager_words.repair)
    return ok(" ".join(f"{name} {installed[name].version}" for name in required[:2]), " ".join(required))


def needed_modules(block: Rdma) -> tuple[str, ...]:
    """Return the modules that the running kernel must have: those of software devices, and of the inbox stack."""
    if block.fabric == "soft":
        return (catalogue.SOFT_MODULES[block.soft.driver], *catalogue.list_modules("all"))
    if block.own_stack != "inbox":
        return ()
    return catalogue.list_modules("all", block.fabric, *(("ipoib",) if block.ipoib else ()))


@check(
    "rdma.kernel",
    *(HOST, system.PLATFORM, system.OS_RELEASE, system.CONTAINER),
    moment="preflight",
    evidence="modinfo rdma_rxe; uname -r",
)
def kernel(ctx: Ctx) -> Outcome:
    """The running kernel has the modules: Debian's cloud kernels lack rxe, and no Debian kernel has siw."""
    needed, host = needed_modules(ctx.fragment), ctx.facts.get(HOST)
    absent = [name for name in needed if host.modules.get(name, "absent") == "absent"]
    release, distribution = ctx.facts.get(system.PLATFORM).kernel, ctx.facts.get(system.OS_RELEASE)
    expected = f"{' '.join(needed) or 'no module'} in kernel {release}"
    if kind := ctx.facts.get(system.CONTAINER):
        if absent and ctx.fragment.fabric == "soft":
            fix = "software RDMA needs a kernel of its own: a machine, not a container; or load it on the machine"
            return fail(expected, f"{kind} container: {' '.join(absent)} not loaded on the machine", fix)
        return skip(f"{kind} container: the modules are the machine's")
    if absent:
        known = (catalogue.explain_absence(name, distribution.id, release) for name in absent)
        fix = next((fix for fix in known if fix), f"{words(distribution).install} a kernel that has {' '.join(absent)}")
        return fail(expected, f"{release} has no {' '.join(absent)}", fix)
    return ok(expected)


@check("rdma.interfaces", HOST, moment="preflight", evidence="ip -br link; ip route show default")
def netdevs(ctx: Ctx) -> Outcome:
    """The network interfaces that should have software devices are present: by name, by address or by the default
    route."""
    if ctx.fragment.fabric != "soft":
        return not_asked()
    selected, host = interfaces(ctx.fragment, ctx.facts), ctx.facts.get(HOST)
    has = " ".join(netdev.name for netdev in host.netdevs)
    missing = [name for name, netdev in selected.items() if netdev is None]
    if missing and not ctx.fragment.soft.netdevs:
        return fail("a default route", f"none; the host has {has}", "rdma.soft.netdevs: [NAME]")
    if missing:
        return fail(" ".join(selected), f"no {' '.join(missing)}; the host has {has}", "correct rdma.soft.netdevs")
    names = [netdev.name for netdev in selected.values() if netdev]
    if twice := {name for name in names if names.count(name) > 1}:
        return fail(
            "one entry for an interface", f"{' '.join(twice)} is named twice", "take one out of rdma.soft.netdevs"
        )
    vlans = [netdev.name for netdev in selected.values() if netdev and netdev.vlan]
    if vlans and ctx.fragment.soft.driver == "rxe":
        fix = "name the interface below it: rxe serves its VLANs, too"
        return fail("an interface that is not a VLAN", f"{' '.join(vlans)} is a VLAN, which rxe refuses", fix)
    return ok(" ".join(names))


@check("rdma.port", HOST, moment="preflight", evidence=f"ss -uanp 'sport = :{catalogue.ROCE_PORT}'")
def port(ctx: Ctx) -> Outcome:
    """No other program holds UDP port 4791, which rxe needs: eRDMA in compat mode holds it, as may a program."""
    if ctx.fragment.fabric != "soft" or ctx.fragment.soft.driver != "rxe":
        return not_asked()
    host = ctx.facts.get(HOST)
    if host.port_users and host.modules.get("rdma_rxe") != "loaded":
        holders = ", ".join(
            "the kernel (eRDMA in compat mode?)" if user == "kernel" else user for user in host.port_users
        )
        fix = "end that program; or rmmod erdma, or soft: {driver: siw}"
        return fail(f"UDP port {catalogue.ROCE_PORT} free", f"held by {holders}", fix)
    return ok("rxe has it" if host.port_users else "free")


CHECKS = (packages, kernel, netdevs, port)
