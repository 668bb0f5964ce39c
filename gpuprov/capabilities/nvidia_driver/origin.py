"""Origin of the driver: the wanted source, the repository and its key; and the CUDA version that it runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

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
from gpuprov.capabilities.nvidia_driver.installed import installed_version
from gpuprov.catalog import cuda as catalogue
from gpuprov.catalog import find_distribution
from gpuprov.catalog.drivers.sets import find_packages, pick_source
from gpuprov.catalog.drivers.sets import list_sources as known_sources
from gpuprov.onhost import sources
from gpuprov.probe.driver import nvidia
from gpuprov.probe.host import system
from gpuprov.probe.host.family import family, words
from gpuprov.probe.software.packages import INDEX, PACKAGES
from gpuprov.probe.software.repositories import REPOSITORIES
from gpuprov.shared import resolve
from gpuprov.shown import counted

Ctx = Context[NvidiaDriver]


@check(
    "nvidia_driver.source", *BASE_PROBES, fields=("source",), evidence="apt-cache policy 'nvidia-*'; rpm -qi '*nvidia*'"
)
def source(ctx: Ctx) -> Outcome:
    """The packages of the set come from the wanted source, and no package of another source's set is installed."""
    wanted = chosen(ctx.fragment, ctx.facts)
    names = package_names(ctx.fragment, ctx.facts)
    flavour = decide(ctx.fragment, ctx.facts).flavour
    found, present = ctx.facts.get(PACKAGES), versions(ctx.facts)
    rules = names.sets[flavour]
    mine = resolve.other_names(rules, present)
    if not mine:
        return fail(wanted, "no driver package of that source is installed", "gpuprov apply")
    if not all(found[name].source for name in mine if name in found):
        return skip("which source packages they were built from was not recorded")
    fits = {
        name for name in mine if re.fullmatch(rule_of(rules, name, present[name]).get("like") or ".*", present[name])
    }
    if wanted == "distribution":
        fits = {name for name in fits if names.of_source(found[name].source)}
    theirs = resolve.of_another(names.others, present)
    known = names.built_otherwise(present)  # nvidia_driver.precompiled tells of these
    foreign = [n for n, p in found.items() if n not in known and (n in theirs or names.foreign(n, p.source))]
    wrong = [f"{name} {present[name]}" for name in (*sorted({*mine} - fits), *foreign)]
    if wrong:
        hint = (
            "gpuprov apply" if not foreign else f"{words(ctx.facts.get(system.OS_RELEASE)).purge} {' '.join(foreign)}"
        )
        return fail(f"{wanted}: {counted(len(mine), 'package')}", f"of another source: {', '.join(wrong)}", hint)
    return ok(f"{wanted}: {counted(len(mine), 'package')}", wanted)


def rule_of(rules: tuple[dict[str, Any], ...], name: str, version: str) -> Mapping[str, Any]:
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
    asked = package_sources.driver_block(ctx.fragment, ctx.facts)
    kind = family(ctx.facts.get(system.OS_RELEASE))
    if asked is None or kind is None:
        return not_asked("provided by the host's own package sources")
    told = ctx.facts.get(REPOSITORIES)
    if not ctx.fragment.repository.url and sources.derive_path(asked["name"], kind) not in told["files"]:
        named = [row["url"] for row in told["sources"] if re.search("nvidia|cuda", row["url"], re.IGNORECASE)]
        if named or sources.find_others(told, asked, kind):
            return ok(f"provided by the host's own sources: {', '.join(named) or asked['url']}")
        return skip(
            "no source of the host is NVIDIA's by its name: whether one has the set, apply sees, and adds NVIDIA's"
        )
    return package_sources.judge(told, asked, kind)


@check(
    "nvidia_driver.source_offered",
    *(system.OS_RELEASE, system.PLATFORM, REPOSITORIES, INDEX),
    fields=("source", "repository", "build"),
    moment="preflight",
    evidence="cat /etc/os-release; uname -m",
)
def source_offered(ctx: Ctx) -> Outcome:
    """The wanted source has a driver for this distribution and architecture, and its key is known; or it is already configured, itself
    or as a mirror whose packages are on offer."""
    release, machine = ctx.facts.get(system.OS_RELEASE), ctx.facts.get(system.PLATFORM).machine
    told = release.name or f"{release.id} {release.version}"
    distribution = find_distribution(release.id, release.version)
    if distribution is None:
        return fail("a distribution whose driver gpuprov manages", told, "see host.supported")
    if offered(ctx.fragment, ctx.facts) is None:
        if ctx.fragment.build == "precompiled" and find_packages(release.id, release.version, ctx.fragment.source):
            hint = "nvidia_driver: {build: dkms}; Ubuntu's archive has them, and NVIDIA's repository for EL 8 and 9"
            return fail(f"precompiled modules of source {ctx.fragment.source}", f"{told} has none", hint)
        bare = ctx.fragment.source == "distribution" or pick_source(distribution) == "runfile"
        hint = (bare and distribution.no_driver) or ", ".join(known_sources(distribution))
        return fail(f"source {ctx.fragment.source}", f"{told} has no such source", hint)
    asked = package_sources.driver_block(ctx.fragment, ctx.facts)
    if asked is None and chosen(ctx.fragment, ctx.facts) == "nvidia":
        hint = "source: mirror with a repository that has packages for it"
        return fail(f"NVIDIA's repository for {told} on {machine}", "NVIDIA has none", hint)
    kind = family(release)
    there = bool(asked and kind and sources.find_others(ctx.facts.get(REPOSITORIES), asked, kind))
    if not there and not ctx.fragment.repository.url:
        there = bool(resolve.kernel_versions(package_names(ctx.fragment, ctx.facts).sets, ctx.facts.get(INDEX)))
    if asked and not (asked["fingerprint"] or asked["key_file"] or there):
        hint = "repository: {url, key_file or key_url, fingerprint}, the last compared with NVIDIA's own page"
        return fail("a key with a known fingerprint", f"gpuprov knows none for {asked['url']}", hint)
    return ok(asked["url"] if asked else f"{told}'s own archive", ctx.fragment.source)


@check(
    "nvidia_driver.cuda",
    *(*BASE_PROBES, nvidia.DRIVER, system.CONTAINER),
    fields=("cuda",),
    evidence="nvidia-smi --query-gpu=driver_version --format=csv,noheader; gpuprov catalog cuda",
)
def cuda(ctx: Ctx) -> Outcome:
    """The installed driver runs the CUDA version that the spec asks for, and so does the loaded one."""
    wanted = ctx.fragment.cuda
    if not wanted:
        return not_asked()
    expected = f"CUDA {wanted}: driver {catalogue.find_floor(wanted)} or newer"
    mine = installed_version(ctx.fragment, ctx.facts)
    if not mine:
        return fail(expected, "no driver package is installed", "gpuprov apply")
    support = catalogue.check_support(mine, wanted)
    if not support.runs:
        return fail(expected, f"{mine} is installed: {support.reason}", "gpuprov apply")
    loaded = "" if ctx.facts.get(system.CONTAINER) else ctx.facts.get(nvidia.DRIVER).version
    if loaded and not catalogue.check_support(loaded, wanted).runs:
        reason = f"the loaded driver {loaded} does not run CUDA {wanted}, the installed {mine} does"
        return fail(expected, reason, "stop the GPU's users and reload the module, or reboot", reboot=reason)
    return ok(f"{mine}; {support.reason}", expected)


CHECKS = (source, repository, cuda)
PREFLIGHT = (source_offered,)
