"""Decision which driver a host should have, from which package source, for which kernels, and why the loaded driver
must be unloaded."""

from collections.abc import Iterable
from string import digits

import msgspec

from gpuprov.capabilities import package_sources
from gpuprov.capabilities.base import Context
from gpuprov.capabilities.booting import started
from gpuprov.capabilities.nvidia_driver.fragment import (
    BASE_PROBES,
    Decision,
    NvidiaDriver,
    build_targets,
    decide,
    followers,
    package_names,
    served,
)
from gpuprov.catalog import find_distribution
from gpuprov.catalog.drivers.sets import build_kernel_module_table, pick_source
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.driver import driver_packages, nvidia, runfile
from gpuprov.facts.probes.driver.driver_packages import BUILDING, INSTALLED, PRECOMPILED
from gpuprov.facts.probes.host import pci, system
from gpuprov.facts.probes.host.family import family
from gpuprov.facts.probes.kernel import modules
from gpuprov.facts.probes.software.excluded import explain_excluded
from gpuprov.facts.probes.software.packages import INDEX, LOCKING, Index
from gpuprov.facts.probes.software.repositories import REPOSITORIES
from gpuprov.host_code import sources
from gpuprov.rules import package_lists, reload, resolve
from gpuprov.spec.overrides import can_add_components

Ctx = Context[NvidiaDriver]
# Probes that decide the version.
RESOLVING = (*BASE_PROBES, INDEX, PRECOMPILED, modules.KERNELS, *package_sources.COMING)
# Probes that decide the transaction.
TRANSACTION = (*RESOLVING, INSTALLED, BUILDING, LOCKING)
# The name of the driver's package source, after gpuprov-.
SOURCE = package_sources.DRIVER
COMPONENTS = "contrib, non-free and non-free-firmware"


def chosen(driver: NvidiaDriver, facts: Facts) -> str:
    """Return the source that `auto` means on this host; empty if its distribution is unknown."""
    release = facts.get(system.OS_RELEASE)
    distribution = find_distribution(release.id, release.version)
    if driver.source != "auto" or distribution is None:
        return driver.source if distribution else ""
    return pick_source(distribution)


def leaving(driver: NvidiaDriver, facts: Facts) -> list[str]:
    """Return gpuprov's own package source if the distribution's driver has no use for it: it is ignored, and removed
    with the transaction."""
    kind = family(facts.get(system.OS_RELEASE))
    if kind is None or driver.repository.url or chosen(driver, facts) != "distribution":
        return []
    return [SOURCE] if sources.derive_path(SOURCE, kind) in facts.get(REPOSITORIES)["files"] else []


def seen(driver: NvidiaDriver, facts: Facts) -> Index:
    """Return the offered packages, without a source that is to be removed."""
    index, kind = facts.get(INDEX), family(facts.get(system.OS_RELEASE))
    if not leaving(driver, facts) or kind != "debian":
        return index
    repo_state = facts.get(REPOSITORIES)
    own_url = next((row.url for row in repo_state["sources"] if row.file == sources.derive_path(SOURCE, kind)), "")
    return driver_packages.without(index, own_url)


def decided(ctx: Ctx) -> Decision:
    """Return the driver that this host should have, out of its package index."""
    built = ctx.facts.get(PRECOMPILED) if ctx.fragment.build == "precompiled" else None
    decision = decide(ctx.fragment, ctx.facts, seen(ctx.fragment, ctx.facts), followers(ctx.host, ctx.facts), built)
    problem, fix = find_hidden(ctx) if decision.problem else ("", "")
    if problem:
        return msgspec.structs.replace(decision, problem=problem, fix=fix)
    return decision


def find_hidden(ctx: Ctx) -> tuple[str, str]:
    """Return the problem and the fix where the site keeps packages of the set out of dnf's sight; empty if none is."""
    rules = [rule for each in package_names(ctx.fragment, ctx.facts).sets.values() for rule in each]
    return explain_excluded(ctx.facts.get(INDEX).excluded, dict.fromkeys(rule["name"] for rule in rules))


def is_offered(driver: NvidiaDriver, facts: Facts) -> bool:
    """Return whether the host's own package sources have any complete set that its GPUs run with."""
    on_bus = [gpu.identifier for gpu in pci.gpus(facts.get(pci.NVIDIA_FUNCTIONS))]
    sets = package_names(driver, facts).sets
    answer = resolve.decide("any", "auto", on_bus, build_kernel_module_table(), sets, seen(driver, facts), {})
    return not answer["problem"]


def repository(ctx: Ctx) -> sources.Source:
    """Return the package source to add or correct; empty if the host's own are to be used."""
    requested, kind = package_sources.driver_block(ctx.fragment, ctx.facts), family(ctx.facts.get(system.OS_RELEASE))
    if requested is None or kind is None:
        return {}
    repo_state = ctx.facts.get(REPOSITORIES)
    if not ctx.fragment.repository.url and any(find_hidden(ctx)):
        return {}  # no source would bring them
    if not ctx.fragment.repository.url and is_offered(ctx.fragment, ctx.facts):
        own = sources.derive_path(SOURCE, kind) in repo_state["files"]
        return requested if own and package_sources.judge(repo_state, requested, kind).status == "fail" else {}
    return requested


def components(ctx: Ctx, archives: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the file of Debian's components that contain its driver, if the host lacks them and the site lets gpuprov
    add them."""
    release, index = ctx.facts.get(system.OS_RELEASE), seen(ctx.fragment, ctx.facts)
    rules = [rule for each in package_names(ctx.fragment, ctx.facts).sets.values() for rule in each]
    offered = any(rule["name"] in index for rule in rules)
    allowed = can_add_components(ctx.host.site)
    if release.id != "debian" or chosen(ctx.fragment, ctx.facts) != "distribution" or offered or not allowed:
        return {}
    text = "# Managed by gpuprov: change the inventory, then apply again.\n"
    text += "# Components of the NVIDIA driver, from the archives that this host already takes main from.\n"
    for address, suite in archives:
        key = _find_signing_key(ctx.facts.get(REPOSITORIES), address, suite)
        text += f"\nTypes: deb\nURIs: {address}\nSuites: {suite}\nComponents: contrib non-free non-free-firmware\n"
        text += f"Signed-By: {key}\n" if key.startswith("/") else ""
    return {"/etc/apt/sources.list.d/gpuprov-non-free.sources": text}


def _find_signing_key(repo_state: sources.Host, address: str, suite: str) -> str:
    """Return the key by which the host's own source of this archive is trusted: apt reads no list if another source of
    it names another key."""
    place = sources.parse_url(address, repo_state)
    rows = [row for row in repo_state["sources"] if row.suite.rstrip("/") == suite.rstrip("/")]
    return next((row.signed_by for row in rows if sources.parse_url(row.url, repo_state) == place), "")


def waits_for(ctx: Ctx, decision: Decision) -> str:
    """Return what must come before the driver can be resolved; empty if it can be resolved now."""
    if ctx.fragment.source == "runfile" or (decision.problem and any(find_hidden(ctx))):
        return ""
    index = ctx.facts.get(INDEX)
    # A source that is still to come may have packages under the names of one that is there (Debian's non-free,
    # NVIDIA's).
    undecided = decision.problem or (ctx.fragment.repository.url and not decision.kept)
    if undecided and not index.busy and (url := package_sources.coming(ctx.fragment, ctx.facts)):
        return f"added {url}"
    names = package_names(ctx.fragment, ctx.facts)
    if not decision.problem or resolve.kernel_versions(names.sets, seen(ctx.fragment, ctx.facts)):
        return ""
    if components(ctx, ()):
        return f"added {COMPONENTS}"
    return "" if index else "fetched the package lists"


def spare(ctx: Ctx) -> list[str]:
    """Return the kernels that nothing is built for: without headers, which are no longer offered, and neither running
    nor started next."""
    offered = {**ctx.facts.get(INDEX), **ctx.facts.get(BUILDING).offered}
    if (
        ctx.fragment.build != "dkms"
        or served(ctx.host, ctx.fragment)
        or ctx.fragment.source == "runfile"
        or not offered
    ):
        return []
    forms = package_names(ctx.fragment, ctx.facts).headers
    flags, kept = {True: "1", False: "0"}, started(ctx.facts)
    rows = [
        ("kernel", target.release, flags[target.bootable], flags[target.headers], flags[target.release in kept])
        for target in build_targets(ctx.facts)
    ]
    return package_lists.without_headers(forms, rows, offered)


def kernels(ctx: Ctx) -> list[modules.KernelModules]:
    """Return the kernels that modules are installed for."""
    left = spare(ctx)
    return [target for target in build_targets(ctx.facts) if target.release not in left]


def installs_runfile(ctx: Ctx, decision: Decision) -> bool:
    """Return whether NVIDIA's installer must run: for another version, another file of it, or the other flavour."""
    if ctx.fragment.source != "runfile":
        return False
    current, is_open = ctx.facts.get(runfile.RUNFILE), decision.flavour == "open"
    same = current.version == decision.version and current.ours.get("sha256", "") == ctx.fragment.runfile.sha256.lower()
    return not same or any(other != is_open for other in current.open.values())


def loaded(ctx: Ctx) -> nvidia.LoadedDriver:
    """Return the driver in the kernel; none in a container, where it is the machine's."""
    return nvidia.LoadedDriver("", open=False) if ctx.facts.get(system.CONTAINER) else ctx.facts.get(nvidia.DRIVER)


def reload_reasons(ctx: Ctx, decision: Decision) -> list[str]:
    """Return why the loaded driver must be unloaded; empty if it may stay or none is loaded.

    If the packages are not known yet, as before the first fetch of their lists, the spec's own number decides whether
    it may stay.
    """
    now, number = loaded(ctx), ctx.fragment.version
    if not now.version:
        return []
    if decision.problem:
        numbered = number[0] in digits and not f"{now.version}.".startswith(f"{number}.")
        return [now.version] if numbered else []
    current = reload.Driver(now.version, "open" if now.open else "proprietary", ctx.facts.get(nvidia.PARAMETERS))
    target = reload.Driver(decision.version, decision.flavour, ctx.fragment.module_parameters)
    # Its installer takes the old files away under whatever runs, and below branch 545 it ends where a driver is loaded.
    anew = ["NVIDIA's installer replaces its files"] if installs_runfile(ctx, decision) else []
    return reload.reload_reasons(current, target) or anew
