"""Decision which version of the toolkit's four packages a host gets, and from where, made once for preflight and for
the role."""

import msgspec

from gpuprov.capabilities import package_sources
from gpuprov.capabilities.base import Context
from gpuprov.capabilities.container_toolkit.fragment import ContainerToolkit, installed
from gpuprov.catalog import container_toolkit as catalogue
from gpuprov.catalog import repositories
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.host.family import family
from gpuprov.facts.probes.software import packages
from gpuprov.facts.probes.software.excluded import explain_excluded
from gpuprov.facts.probes.software.repositories import REPOSITORIES
from gpuprov.host_code import sources
from gpuprov.host_code.json_members import Json
from gpuprov.rules import resolve

PROBES = (packages.PACKAGES, packages.INDEX, system.OS_RELEASE, system.PLATFORM)
SITE = "container_toolkit_repository"
Ctx = Context[ContainerToolkit]


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The set for a host: package versions by name."""

    version: str = ""
    packages: dict[str, str] = {}
    # Why there is none.
    problem: str = ""
    fix: str = ""
    # The site's repository, if apply is to add it first, and its content is not known yet.
    source: str = ""


def decide(ctx: Ctx) -> Decision:
    """Decide on one version for all four packages, from the host's own package index."""
    facts, requested = ctx.facts, ctx.fragment.version
    have = {name: package.version for name, package in installed(facts).items()}
    index = facts.get(packages.INDEX)
    needed = list(catalogue.PACKAGES)
    resolution = resolve.resolve(requested, needed, index, have)
    source = coming(ctx)
    if not resolution["problem"]:
        return Decision(version=resolution["version"], packages=resolution["packages"], source=source)
    problem, fix = explain_excluded(index.excluded, needed)
    if problem:
        return Decision(problem=problem, fix=fix)
    fix = resolution["fix"] if any(name in index for name in needed) else _suggest_repository(facts)
    return Decision(problem=resolution["problem"].replace("driver version", "version"), fix=fix, source=source)


def _suggest_repository(facts: Facts) -> str:
    """Return what to do if none of the host's repositories has the toolkit."""
    kind = "debian" if family(facts.get(system.OS_RELEASE)) == "debian" else "redhat"
    known = repositories.find_toolkit_repository(kind, facts.get(system.PLATFORM).machine)
    place = f"NVIDIA's repository {known['url']}" if known else "a repository of NVIDIA's"
    return (
        f"the toolkit is in {place}, not in the distribution's: add it or a mirror of it to the host's package "
        f"sources, or set {SITE} and {SITE}_key in the inventory"
    )


def repository(ctx: Ctx) -> dict[str, Json]:
    """Return the site's repository of the toolkit, as the module gpuprov_repository takes it; empty if the site names
    none."""
    words = str(ctx.host.site.get(SITE, "")).split()
    if not words:
        return {}
    suites = family(ctx.facts.get(system.OS_RELEASE)) == "debian"
    return {
        "name": package_sources.CONTAINER_TOOLKIT,
        "of": SITE,
        "url": words[0],
        "suite": words[1] if suites and len(words) > 1 else "/",
        "components": words[2:] if suites else [],
        "key_file": str(ctx.host.site.get(f"{SITE}_key", "")),
        "key_url": "",
        "fingerprint": "",
        "signed": "index",
    }


def coming(ctx: Ctx) -> str:
    """Return the URL of the site's repository, if the host does not have it yet as apply writes it; empty otherwise."""
    requested, kind = repository(ctx), family(ctx.facts.get(system.OS_RELEASE))
    if not requested or kind is None:
        return ""
    repo_state = ctx.facts.get(REPOSITORIES)
    effective = package_sources.standing(repo_state, requested, kind)
    in_place = repo_state["files"].get(sources.derive_path(effective["name"], kind)) == sources.format_text(
        effective, kind
    )
    return "" if in_place else str(requested["url"])
