"""Origin of the driver: the wanted source, the repository and its key; and the CUDA version that it runs."""

import re

from gpuprov.capabilities import package_sources
from gpuprov.capabilities.base import Context, Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.nvidia_driver.decision import chosen
from gpuprov.capabilities.nvidia_driver.fragment import (
    BASE_PROBES,
    NvidiaDriver,
    decide,
    offered,
    package_names,
    versions,
)
from gpuprov.capabilities.nvidia_driver.transaction import installed_version
from gpuprov.catalog import cuda as catalogue
from gpuprov.catalog import find_distribution
from gpuprov.catalog.drivers.sets import find_packages, pick_source
from gpuprov.catalog.drivers.sets import list_sources as known_sources
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.host.family import family, words
from gpuprov.facts.probes.software.packages import INDEX, PACKAGES
from gpuprov.facts.probes.software.repositories import REPOSITORIES
from gpuprov.host_code import sources
from gpuprov.rules import resolve
from gpuprov.rules.package_lists import Rule

Ctx = Context[NvidiaDriver]


@check(
    "nvidia_driver.source", *BASE_PROBES, fields=("source",), evidence="apt-cache policy 'nvidia-*'; rpm -qi '*nvidia*'"
)
def source(ctx: Ctx) -> Outcome:
    """The packages of the set come from the wanted source, and no package of another source's set is installed."""
    target = chosen(ctx.fragment, ctx.facts)
    names = package_names(ctx.fragment, ctx.facts)
    flavour = decide(ctx.fragment, ctx.facts).flavour
    installed, present = ctx.facts.get(PACKAGES), versions(ctx.facts)
    rules = names.sets[flavour]
    own_names = resolve.other_names(rules, present)
    if not own_names:
        return fail(target, "no driver package of that source is installed", "gpuprov apply")
    if not all(installed[name].source for name in own_names if name in installed):
        return skip("which source packages they were built from was not recorded")
    fits = {
        name
        for name in own_names
        if re.fullmatch(rule_of(rules, name, present[name]).get("like") or ".*", present[name])
    }
    if target == "distribution":
        fits = {name for name in fits if names.of_source(installed[name].source)}
    theirs = resolve.of_another(names.others, present)
    known = names.built_otherwise(present)  # nvidia_driver.precompiled tells of these
    foreign = [n for n, p in installed.items() if n not in known and (n in theirs or names.foreign(n, p.source))]
    wrong = [f"{name} {present[name]}" for name in (*sorted({*own_names} - fits), *foreign)]
    if wrong:
        fix = "gpuprov apply" if not foreign else f"{words(ctx.facts.get(system.OS_RELEASE)).purge} {' '.join(foreign)}"
        return fail(f"{target}: {counted(len(own_names), 'package')}", f"of another source: {', '.join(wrong)}", fix)
    return ok(f"{target}: {counted(len(own_names), 'package')}", target)


def rule_of(rules: tuple[Rule, ...], name: str, version: str) -> Rule:
    """Return the rule by which a package of this name and version is in the set."""
    return resolve.fitting(rules, version).get(name, {})


@check(
    "nvidia_driver.repository",
    *(system.OS_RELEASE, system.PLATFORM, REPOSITORIES),
    fields=("source", "repository"),
    evidence=package_sources.SHOWN,
)
def repository(ctx: Ctx) -> Outcome:
    """NVIDIA's repository, or the site's mirror, is a package source of the host, trusted by exactly its key."""
    requested = package_sources.driver_block(ctx.fragment, ctx.facts)
    kind = family(ctx.facts.get(system.OS_RELEASE))
    if requested is None or kind is None:
        return not_asked("provided by the host's own package sources")
    repo_state = ctx.facts.get(REPOSITORIES)
    if not ctx.fragment.repository.url and sources.derive_path(requested["name"], kind) not in repo_state["files"]:
        named = [row.url for row in repo_state["sources"] if re.search("nvidia|cuda", row.url, re.IGNORECASE)]
        if named or sources.find_others(repo_state, requested, kind):
            return ok(f"provided by the host's own sources: {', '.join(named) or requested['url']}")
        return skip(
            "no source of the host is NVIDIA's by its name: apply looks whether one has the set, and else adds NVIDIA's"
        )
    return package_sources.judge(repo_state, requested, kind)


@check(
    "nvidia_driver.source_offered",
    *(system.OS_RELEASE, system.PLATFORM, REPOSITORIES, INDEX),
    fields=("source", "repository", "build"),
    moment="preflight",
    evidence="cat /etc/os-release; uname -m",
)
def source_offered(ctx: Ctx) -> Outcome:
    """The wanted source has a driver for this distribution and architecture, and its key is known; or it is already
    configured, itself or as a mirror whose packages are on offer."""
    release, machine = ctx.facts.get(system.OS_RELEASE), ctx.facts.get(system.PLATFORM).machine
    distro = release.name or f"{release.id} {release.version}"
    distribution = find_distribution(release.id, release.version)
    if distribution is None:
        return fail("a distribution whose driver gpuprov manages", distro, "see host.supported")
    if offered(ctx.fragment, ctx.facts) is None:
        if ctx.fragment.build == "precompiled" and find_packages(release.id, release.version, ctx.fragment.source):
            fix = "nvidia_driver: {build: dkms}; Ubuntu's archive has them, and NVIDIA's repository for EL 8 and 9"
            return fail(f"precompiled modules of source {ctx.fragment.source}", f"{distro} has none", fix)
        bare = ctx.fragment.source == "distribution" or pick_source(distribution) == "runfile"
        fix = (bare and distribution.no_driver) or ", ".join(known_sources(distribution))
        return fail(f"source {ctx.fragment.source}", f"{distro} has no such source", fix)
    requested = package_sources.driver_block(ctx.fragment, ctx.facts)
    if requested is None and chosen(ctx.fragment, ctx.facts) == "nvidia":
        fix = "source: mirror with a repository that has packages for it"
        return fail(f"NVIDIA's repository for {distro} on {machine}", "NVIDIA has none", fix)
    kind = family(release)
    is_offered = bool(requested and kind and sources.find_others(ctx.facts.get(REPOSITORIES), requested, kind))
    if not is_offered and not ctx.fragment.repository.url:
        is_offered = bool(resolve.kernel_versions(package_names(ctx.fragment, ctx.facts).sets, ctx.facts.get(INDEX)))
    if requested and not (requested["fingerprint"] or requested["key_file"] or is_offered):
        fix = "repository: {url, key_file or key_url, fingerprint}, the last compared with NVIDIA's own page"
        return fail("a key with a known fingerprint", f"gpuprov knows none for {requested['url']}", fix)
    return ok(requested["url"] if requested else f"{distro}'s own archive", ctx.fragment.source)


@check(
    "nvidia_driver.cuda",
    *(*BASE_PROBES, nvidia.DRIVER, system.CONTAINER),
    fields=("cuda",),
    evidence="nvidia-smi --query-gpu=driver_version --format=csv,noheader; gpuprov catalog cuda",
)
def cuda(ctx: Ctx) -> Outcome:
    """The installed driver runs the CUDA version that the spec asks for, and so does the loaded one."""
    requested = ctx.fragment.cuda
    if not requested:
        return not_asked()
    expected = f"CUDA {requested}: driver {catalogue.find_floor(requested)} or newer"
    version = installed_version(ctx.fragment, ctx.facts)
    if not version:
        return fail(expected, "no driver package is installed", "gpuprov apply")
    support = catalogue.check_support(version, requested)
    if not support.runs:
        return fail(expected, f"{version} is installed: {support.reason}", "gpuprov apply")
    loaded = "" if ctx.facts.get(system.CONTAINER) else ctx.facts.get(nvidia.DRIVER).version
    if loaded and not catalogue.check_support(loaded, requested).runs:
        reason = f"the loaded driver {loaded} does not run CUDA {requested}, the installed {version} does"
        return fail(expected, reason, "stop the GPU's users and reload the module, or reboot", reboot=reason)
    return ok(f"{version}; {support.reason}", expected)


CHECKS = (source, repository, cuda)
PREFLIGHT = (source_offered,)
