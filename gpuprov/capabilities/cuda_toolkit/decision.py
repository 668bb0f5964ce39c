"""Decision which packages of the CUDA toolkit, cuDNN and NCCL a host should have, by what is installed and offered."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from gpuprov.capabilities.cuda_toolkit.fragment import CudaToolkit
from gpuprov.catalog import cuda
from gpuprov.catalog.cuda import packages as catalogue
from gpuprov.catalog.cuda.packages import (
    Library,
    PartFact,
    find_built_for,
    find_toolkit,
    format_dashed,
    is_satisfying,
    take_major,
    take_minor,
)
from gpuprov.facts.probes.driver.cuda_toolkit import Requires
from gpuprov.rules import resolve


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """`releases`: package versions by toolkit (`12.4`). `packages`: exact versions by name, `remove`: packages to
    remove; both empty if there is a `problem`, whose fix is `fix`."""

    releases: dict[str, str]
    default: str
    packages: dict[str, str] = {}
    remove: tuple[str, ...] = ()
    problem: str = ""
    fix: str = ""


class There(NamedTuple):
    """The basis of the decision: versions that the repositories offer, newest first, and installed ones, by package
    name."""

    family: str
    offered: Mapping[str, list[str]]
    installed: Mapping[str, str]
    driver: str = ""


class _Missing(Exception):
    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(problem)
        self.problem, self.fix = problem, fix


def decide(block: CudaToolkit, host_state: There) -> Decision:
    """Decide; installed packages that satisfy the spec are kept, so that a second run never upgrades. Without versions:
    the installed toolkits, else the newest that the driver runs."""
    releases: dict[str, str] = {}
    packages: dict[str, str] = {}
    remove: list[str] = []
    pattern, default = catalogue.get_part(block.parts).package, ""
    try:
        for version in block.versions or _choose_versions(pattern, host_state):
            name = pattern.format(minor=format_dashed(version))
            releases[take_minor(version)] = packages[name] = _find_release(name, version, pattern, host_state)
        default = block.default or max(releases, key=resolve.order)
        for library, requested in (("cudnn", block.cudnn), ("nccl", block.nccl)):
            if requested:
                chosen, leaving = _choose_library(library, requested, take_major(default), block.parts, host_state)
                packages |= chosen
                remove += leaving
    except _Missing as missing:
        return Decision(releases=releases, default=default, problem=missing.problem, fix=missing.fix)
    if block.only:
        others = {name for name in host_state.installed if find_toolkit(name) and find_toolkit(name) not in releases}
        metapackages = (entry.pattern for entry in catalogue.read_toolkits_file().metapackages)
        remove += sorted(others | set(catalogue.select_matching(host_state.installed, metapackages)))
    return Decision(releases=releases, default=default, packages=packages, remove=tuple(remove))


def components(requires: Requires, chosen: Mapping[str, str], installed: Mapping[str, str]) -> dict[str, str]:
    """Return every package of the chosen releases, each in the version that its release was made with: a metapackage
    depends on its components by `>=`, and the bound is that version.

    If the repositories no longer have the bound's version, a newer installed one stays, else the oldest newer one is
    taken.
    """
    versions = dict(chosen)
    waiting = list(chosen)
    while waiting:
        name = waiting.pop()
        for other, bound in requires.get(name, {}).get(versions[name], {}).items():
            if other in requires and other not in versions:
                versions[other] = _describe_bound(bound, list(requires[other]), installed.get(other, ""))
                waiting.append(other)
    return {name: version for name, version in versions.items() if version}


def space_needed(decision: Decision, part: str, host_state: There) -> dict[str, int]:
    """Return the MiB that missing packages need: `installed` under /usr, `archive` in the package manager's cache."""
    missing = decision.packages.keys() - host_state.installed.keys()
    needs: list[PartFact | Library] = [catalogue.get_part(part)] * sum(bool(find_toolkit(name)) for name in missing)
    for entry in catalogue.read_toolkits_file().libraries:
        if entry.family == host_state.family and catalogue.select_matching(missing, _list_named(entry.run, r"\d+")):
            needs.append(entry)
    return {"installed": sum(need.installed_mib for need in needs), "archive": sum(need.archive_mib for need in needs)}


def _choose_versions(pattern: str, host_state: There) -> list[str]:
    """Return the installed toolkits, else the newest of those offered that the catalogue knows and the driver runs, or
    any if the driver is unknown."""
    stem, floors = pattern.removesuffix("{minor}"), cuda.list_floors()

    def minors(names: Iterable[str]) -> list[str]:
        return sorted(
            {find_toolkit(name) for name in names if name == stem + format_dashed(find_toolkit(name))} - {""},
            key=resolve.order,
        )

    def runs(version: str) -> bool:
        return version in floors and (
            not host_state.driver or resolve.order(host_state.driver) >= resolve.order(floors[take_major(version)])
        )

    releases = minors(host_state.installed) or [version for version in minors(host_state.offered) if runs(version)][-1:]
    if not releases:
        missing = f"the host's repositories have no {pattern.format(minor='X-Y')}"
        raise _Missing(missing, _explain_no_repository(host_state.driver))
    return releases


def _find_release(name: str, version: str, pattern: str, host_state: There) -> str:
    match = _choose([name], version, "", host_state)
    if match:
        return match
    offered = ", ".join(dict.fromkeys(resolve.upstream(candidate) for candidate in host_state.offered.get(name, [])))
    fix = f"there are: {offered}" if offered else _describe_others(pattern, host_state.offered)
    raise _Missing(f"the host's repositories have no {name} {version}", fix)


def _choose_library(
    library: str, version: str, cuda_major: str, part: str, host_state: There
) -> tuple[dict[str, str], list[str]]:
    """Return the packages of a library for a CUDA major, in one version, and those of another major that are removed
    for them."""
    entry = _find_entry(library, version, host_state.family)

    # Where the toolkit has no compiler, no packages to build programs.
    build = part != "libraries"
    names, in_name = (
        _list_named((*entry.run, *entry.build * build), cuda_major),
        any("{cuda}" in name for name in entry.run),
    )
    exact = _choose(names, version, "" if in_name else cuda_major, host_state)
    if not exact:
        offered = [
            v for v in host_state.offered.get(names[0], []) if in_name or take_major(find_built_for(v)) == cuda_major
        ]
        whole = [v for v in offered if all(v in host_state.offered.get(name, []) for name in names)]
        listed = ", ".join(dict.fromkeys(resolve.upstream(candidate) for candidate in whole))
        other = f"enable NVIDIA's CUDA repository, or a mirror that has {' and '.join(names)}"
        missing = f"the host's repositories have no {library} {version} for CUDA {cuda_major} ({' '.join(names)})"
        raise _Missing(missing, f"there are: {listed}" if listed else other)
    names += [
        name
        for name in _list_named(entry.beside * build, cuda_major)
        if exact in (host_state.installed.get(name), *host_state.offered.get(name, []))
    ]
    # Two cuDNN of different CUDA majors have one soname: which of them a program gets is chance.
    rules = _list_named((*entry.run, *entry.build, *entry.beside), r"\d+") if in_name else []
    leaving = [name for name in catalogue.select_matching(host_state.installed, rules) if name not in names]
    return dict.fromkeys(names, exact), leaving


def _list_named(rules: Iterable[str], cuda_major: str) -> list[str]:
    return [rule.replace("{cuda}", cuda_major) for rule in rules]


def _find_entry(library: str, version: str, family: str) -> Library:
    rows = [row for row in catalogue.read_toolkits_file().libraries if (row.library, row.family) == (library, family)]
    match = next((row for row in rows if row.major == take_major(version)), None)
    if match:
        return match
    known = ", ".join(row.major for row in rows) or "none on a host of this family; leave it out"
    raise _Missing(f"no packages of {library} {version} are known", f"majors that are known: {known}")


def _choose(names: list[str], requested: str, cuda_major: str, host_state: There) -> str:
    """Return one version for all names, the installed one if it satisfies the spec; for a library, built for the CUDA
    major. Empty if there is none."""

    def fits(version: str) -> bool:
        return is_satisfying(version, requested) and (
            not cuda_major or take_major(find_built_for(version)) == cuda_major
        )

    have = {host_state.installed.get(name, "") for name in names}
    if len(have) == 1 and fits(next(iter(have))):
        return have.pop()
    offered = host_state.offered.get(names[0], [])
    whole = [v for v in offered if fits(v) and all(v in host_state.offered.get(name, []) for name in names)]
    present = host_state.installed.get(names[0], "")
    return max(
        whole,
        key=lambda v: (v == present, resolve.order(v), resolve.order(find_built_for(v) or "0"), -offered.index(v)),
        default="",
    )


def _describe_bound(bound: str, versions: list[str], present: str) -> str:
    exact = [version for version in versions if bound in (version, resolve.upstream(version))]
    if present in exact or (present and not exact and resolve.order(present) >= resolve.order(bound)):
        return present
    newer = [version for version in versions if resolve.order(version) >= resolve.order(bound)]
    return exact[0] if exact else min(newer, key=resolve.order, default="")


def _describe_others(pattern: str, index: Mapping[str, list[str]]) -> str:
    stem = pattern.removesuffix("{minor}")
    offered = sorted(
        (find_toolkit(name) for name in index if name.startswith(stem) and find_toolkit(name)), key=resolve.order
    )
    return f"toolkits that are there: {', '.join(offered)}" if offered else _explain_no_repository("")


def _explain_no_repository(driver: str) -> str:
    condition = f", with a toolkit that driver {driver} runs" if driver else ""
    return f"enable NVIDIA's CUDA repository for this distribution, or a mirror of it{condition}"
