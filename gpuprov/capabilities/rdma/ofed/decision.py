"""Decision which packages of DOCA-OFED a host gets, and from where: by what is installed, what is offered, and what the
spec names."""

import re

import msgspec

from gpuprov.capabilities.rdma.ofed.fragment import Ofed as Asked
from gpuprov.catalog.rdma import ofed as catalogue
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.host.family import family
from gpuprov.facts.probes.rdma import ofed as probe
from gpuprov.facts.probes.rdma.ofed import INDEX, OFED, PACKAGES, Ofed
from gpuprov.facts.probes.software import packages

PROBES = (OFED, PACKAGES, INDEX, packages.PACKAGES, system.OS_RELEASE)
ENDS = {"debian": "deb", "redhat": "rpm"}
FIX = "url and sha256 of the doca-host package in rdma.ofed, or its repository on the host"


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """`install`: packages, some as NAME=VERSION. `source`: the path on the host of the named doca-host package, which
    brings a package source that is not yet present; `waits`: the packages are decided once it is. `problem`: why OFED
    cannot be installed, and the fix."""

    install: tuple[str, ...] = ()
    source: str = ""
    waits: bool = False
    problem: str = ""
    fix: str = ""


def named(source: Asked) -> str:
    """Return the doca-host package of the spec: its URL or its file; empty if there is none."""
    return source.url or source.file


def release_of(facts: Facts, state: Ofed) -> str:
    """Return OFED's release: that of ofed_info, or else from the version of its kernel package. Empty without OFED."""
    if state.release:
        return state.release
    names = catalogue.list_packages("debian", kernel=True) + catalogue.list_packages("redhat", kernel=True)
    installed = facts.get(PACKAGES)
    return next((probe.release(installed[name].version) for name in names if name in installed), "")


def decide(ofed: Asked, facts: Facts) -> Decision:
    """Decide; an installed OFED of the requested release stays as it is."""
    state, installed, kind = facts.get(OFED), facts.get(PACKAGES), family(facts.get(system.OS_RELEASE))
    if kind not in catalogue.FAMILIES:
        return Decision()
    release, present = release_of(facts, state), catalogue.PROFILE in installed
    if release and not present:
        message = f"OFED {release} is there without {catalogue.PROFILE}"
        return Decision(problem=message, fix=f"{catalogue.UNINSTALL}, on the host, then apply again")
    missing = tuple(_list_headers(kind, facts))
    source = _find_source(ofed, state, kind)
    if present and catalogue.is_fitting(release, ofed.version):
        return Decision(install=missing, source=source)
    if source:
        return Decision(source=source, waits=True)
    return _decide_from_sources(ofed, facts, kind, missing)


def _decide_from_sources(ofed: Asked, facts: Facts, kind: str, missing: tuple[str, ...]) -> Decision:
    """Decide from the host's package sources: the requested release, of every package that has it in its version."""
    index, names = facts.get(INDEX), catalogue.list_packages(kind, kernel=True)
    offered = next((index[name] for name in names if name in index), [])
    right = [version for version in offered if _is(version, ofed.version)]
    if catalogue.PROFILE not in index and index.busy:
        message = "another package manager is at work on the host, and its package lists cannot be read"
        return Decision(problem=message, fix="wait until it has ended, then do it again")
    if catalogue.PROFILE not in index:
        return Decision(problem=f"the repositories of the host have no {catalogue.PROFILE}", fix=FIX)
    if ofed.version and not right:
        message = (
            f"rdma.ofed.version is {ofed.version}, and the repositories of the host have {', '.join(offered) or 'none'}"
        )
        return Decision(problem=message, fix=FIX)
    comes = ofed.version or next((probe.release(version) for version in right), "")
    distribution = facts.get(system.OS_RELEASE)
    if why := catalogue.find_unbuildable(kind, distribution.version, comes):
        return Decision(problem=f"OFED {comes} on {distribution.name}: {why.why}", fix=why.way)
    pins = [f"{name}={right[0]}" for name in names if name in index] if ofed.version else []
    return Decision(install=(*missing, catalogue.PROFILE, *pins))


def _is(version: str, requested: str) -> bool:
    """Return whether a package's version is of this release: 25.10-1.7.1 is in 25.10.OFED.25.10.1.7.1.1-1."""
    dotted = re.escape(requested.replace("-", "."))
    return not requested or bool(re.search(rf"OFED[.]{dotted}([.-]|\Z)", version))


def _list_headers(kind: str, facts: Facts) -> list[str]:
    """Return the packages of headers for bootable kernels that have none."""
    installed = facts.get(packages.PACKAGES)
    bare = [kernel for kernel in facts.get(OFED).kernels if kernel.bootable and not kernel.headers]
    return [name for kernel in bare if (name := catalogue.name_headers(kind, kernel.release)) not in installed]


def _find_source(ofed: Asked, state: Ofed, kind: str) -> str:
    """Return the path of the named package, if it has yet to bring its package source."""
    name = f"{ofed.sha256.lower()}.{ENDS[kind]}"
    is_fetched = name in state.fetched and bool(state.sources)
    return "" if is_fetched or not named(ofed) else f"{catalogue.PLACE}/{name}"
