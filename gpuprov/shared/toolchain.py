"""Which packages of the CUDA toolkit, cuDNN and NCCL a host shall have. Standard library only.

Rendered projects carry this file as an Ansible filter plugin, so that checks and role decide by the same code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

Index = Mapping[str, list[str]]
Installed = Mapping[str, str]
FAMILY = r"(?:cuda|lib(?:cu[a-z]+|npp|nv[a-z]+)|gds-tools|nvidia-gds)(?:-[a-z0-9]+)*?"
"""Names of a toolkit's packages, before the dash and the version that end them."""


def upstream(version: str) -> str:
    """`2.21.5-1+cuda12.4` -> `2.21.5`; an epoch is left out too."""
    return version.rpartition(":")[2].partition("-")[0]


def order(version: str) -> tuple[int, ...]:
    """Sort key of an upstream version; a part that is no number counts as 0."""
    return tuple(int(part) if re.fullmatch("[0-9]{1,18}", part) else 0 for part in upstream(version).split("."))


def satisfies(version: str, wanted: str) -> bool:
    """Whether a version is the wanted one, or one of the series that it names: 12.4.1 is a 12.4."""
    return f"{upstream(version)}.".startswith(f"{wanted}.")


def minor(version: str) -> str:
    """12.4.1 -> 12.4"""
    return ".".join(version.split(".")[:2])


def major(version: str) -> str:
    """12.4.1 -> 12"""
    return version.partition(".")[0]


def runtime(version: str) -> str:
    """The soname of a toolkit's libcudart: every minor had its own until 10, all of 11 have that of 11.0, and later ones the major."""
    number = major(version)
    return f"libcudart.so.{number if int(number) > 11 else '11.0' if number == '11' else minor(version)}"


def dashed(version: str) -> str:
    """12.4.1 -> 12-4, as in package names."""
    return minor(version).replace(".", "-")


def toolkit_of(name: str) -> str:
    """The toolkit (`12.4`) that a package belongs to by its name; empty for one that belongs to none."""
    match = re.fullmatch(rf"{FAMILY}-(\d+)-(\d+)(?:-config-common)?", name)
    return f"{match[1]}.{match[2]}" if match else ""


def built_for(version: str) -> str:
    """The CUDA version that a library's package version names: `2.21.5-1+cuda12.4` -> `12.4`; empty where it names none."""
    match = re.search(r"[+.]cuda(\d+\.\d+)\Z", version)
    return match[1] if match else ""


def matching(names: Iterable[str], patterns: list[str]) -> list[str]:
    """The names that one of the regular expressions matches whole."""
    return sorted(name for name in names if any(re.fullmatch(pattern, name) for pattern in patterns))


def runs(driver: str, version: str, floors: Mapping[str, str]) -> bool:
    """Whether a driver runs a toolkit; true where the driver or the toolkit's floor is not known."""
    floor = floors.get(major(version), "")
    return not driver or not floor or order(driver) >= order(floor)


def decide(
    wanted: Mapping[str, Any],
    table: Mapping[str, Any],
    family: str,
    index: Index,
    installed: Installed,
    driver: str = "",
) -> dict[str, Any]:
    """`{releases {minor: package version}, default, packages {name: version}, remove, problem, hint}`.

    wanted: the fragment's fields. What is installed and satisfies is kept, so that a second run never upgrades. Without
    versions: those that are installed, else the newest that the driver runs.
    """
    answer: dict[str, Any] = {"releases": {}, "default": "", "packages": {}, "remove": [], "problem": "", "hint": ""}
    pattern = table["parts"][wanted["parts"]]["package"]
    versions = list(wanted["versions"]) or _versions(pattern, index, installed, driver, table["floors"])
    if not versions:
        return _refused(
            answer, f"the host's repositories have no {pattern.format(minor='X-Y')}", _no_repository(driver)
        )
    for version in versions:
        name = pattern.format(minor=dashed(version))
        found = _choose([name], version, "", index, installed)
        if not found:
            there = ", ".join(dict.fromkeys(upstream(one) for one in index.get(name, [])))
            hint = f"there are: {there}" if there else _others(pattern, index)
            return _refused(answer, f"the host's repositories have no {name} {version}", hint)
        answer["releases"][minor(version)] = found[name]
        answer["packages"] |= found
    answer["default"] = wanted["default"] or max(answer["releases"], key=order)
    for library in ("cudnn", "nccl"):
        if wanted[library] and not _add_library(answer, library, wanted, table, family, index, installed):
            return answer
    if wanted["only"]:
        others = {name for name in installed if toolkit_of(name) and toolkit_of(name) not in answer["releases"]}
        answer["remove"] += sorted(others | set(matching(installed, table["metapackages"])))
    return answer


def components(text: str, chosen: Mapping[str, str], installed: Installed) -> dict[str, str]:
    """Every package of the chosen releases, each in the version that its release was made with: the bound of `>=`.

    text: blocks `@NAME|VERSION` with a dependency a line (`NAME (>= BOUND)` or `NAME >= BOUND`). Where the repositories have the
    bound's version no more, an installed one that is newer stays, else the oldest that is newer is taken.
    """
    blocks: dict[str, dict[str, list[str]]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("@"):
            name, _, version = line[1:].strip().partition("|")
            lines = blocks.setdefault(name, {}).setdefault(version, [])
        else:
            lines.append(line.strip())
    found = dict(chosen)
    waiting = list(chosen)
    while waiting:
        name = waiting.pop()
        for line in blocks.get(name, {}).get(found[name], []):
            match = re.match(r"([^\s(|]+)\s*\(?\s*>?=\s*([^\s)]+)", line)
            if match and match[1] in blocks and match[1] not in found:
                found[match[1]] = _bound(match[2], list(blocks[match[1]]), installed.get(match[1], ""))
                waiting.append(match[1])
    return {name: version for name, version in found.items() if version}


def space(
    decision: Mapping[str, Any], wanted: Mapping[str, Any], table: Mapping[str, Any], installed: Installed
) -> dict[str, int]:
    """MiB that the packages which are not there yet need: `installed` under /usr, `archive` in the package manager's cache."""
    part = table["parts"][wanted["parts"]]
    needs = [part for name in decision["packages"] if name not in installed and toolkit_of(name)]
    for entry in table["libraries"]:
        needs += [entry] * any(
            name not in installed and re.fullmatch(rule.replace("{cuda}", r"\d+"), name)
            for name in decision["packages"]
            for rule in entry["run"]
        )
    return {key: sum(need[f"{key}_mib"] for need in needs) for key in ("installed", "archive")}


def names(wanted: Mapping[str, Any], table: Mapping[str, Any], family: str) -> list[str]:
    """Every name that the index must be asked for: those of the toolkits that are named, or of all that are known."""
    pattern = table["parts"][wanted["parts"]]["package"]
    asked = [
        pattern.format(minor=dashed(version))
        for version in [*wanted["versions"], *([] if wanted["versions"] else table["minors"])]
    ]
    for entry in table["libraries"]:
        if entry["family"] == family and wanted[entry["library"]]:
            rules = [*entry["run"], *entry["build"], *entry["beside"]]
            asked += [rule.replace("{cuda}", cuda) for rule in rules for cuda in table["floors"]]
    return list(dict.fromkeys(asked))


def arguments(packages: Mapping[str, str], installed: Installed) -> list[str]:
    """`name=version` of what is not installed in that version."""
    return [f"{name}={version}" for name, version in packages.items() if installed.get(name) != version]


def mine(installed: Iterable[str], decision: Mapping[str, Any]) -> list[str]:
    """The installed packages of the decided toolkits, and of the libraries beside them."""
    return sorted(
        name for name in installed if toolkit_of(name) in decision["releases"] or name in decision["packages"]
    )


def not_run(releases: Iterable[str], driver: str, floors: Mapping[str, str]) -> list[str]:
    """The toolkits that the driver does not run."""
    return [release for release in releases if not runs(driver, release, floors)]


def library_packages(entry: Mapping[str, Any], cuda: str, parts: str) -> list[str]:
    """The packages of a library for a CUDA major; without those to build programs where the toolkit has no compiler."""
    names = entry["run"] + ([] if parts == "libraries" else entry["build"])
    return [name.replace("{cuda}", cuda) for name in names]


def _add_library(
    answer: dict[str, Any], library: str, wanted: Mapping[str, Any], table: Mapping[str, Any], family: str, index: Index,
    installed: Installed,
) -> bool:  # fmt: skip
    version, cuda = wanted[library], major(answer["default"])
    entry = next(
        (e for e in table["libraries"] if (e["library"], e["major"], e["family"]) == (library, major(version), family)),
        None,
    )
    if entry is None:
        known = ", ".join(e["major"] for e in table["libraries"] if (e["library"], e["family"]) == (library, family))
        hint = f"majors that are known: {known or 'none on a host of this family; leave it out'}"
        _refused(answer, f"no packages of {library} {version} are known", hint)
        return False
    names = library_packages(entry, cuda, wanted["parts"])
    in_name = any("{cuda}" in name for name in entry["run"])
    found = _choose(names, version, "" if in_name else cuda, index, installed)
    if not found:
        offered = [v for v in index.get(names[0], []) if in_name or major(built_for(v)) == cuda]
        whole = [v for v in offered if all(v in index.get(name, []) for name in names)]
        listed = ", ".join(dict.fromkeys(upstream(one) for one in whole))
        hint = (
            f"there are: {listed}"
            if listed
            else f"enable NVIDIA's CUDA repository, or a mirror that has {' and '.join(names)}"
        )
        _refused(
            answer, f"the host's repositories have no {library} {version} for CUDA {cuda} ({' '.join(names)})", hint
        )
        return False
    exact = found[names[0]]
    beside = [name.replace("{cuda}", cuda) for name in entry["beside"] if wanted["parts"] != "libraries"]
    found |= {name: exact for name in beside if exact in [installed.get(name), *index.get(name, [])]}
    answer["packages"] |= found
    # Two cuDNN of different CUDA majors have one soname: which of them a program gets is chance.
    rules = [
        re.escape(rule).replace(re.escape("{cuda}"), r"\d+") for rule in entry["run"] + entry["build"] + entry["beside"]
    ]
    answer["remove"] += [name for name in matching(installed, rules) if name not in found and in_name]
    return True


def _choose(names: list[str], wanted: str, cuda: str, index: Index, installed: Installed) -> dict[str, str]:
    """One version for all names, the installed one where it will do; for a library, built for the CUDA major."""

    def fits(version: str) -> bool:
        return satisfies(version, wanted) and (not cuda or major(built_for(version)) == cuda)

    have = {installed.get(name, "") for name in names}
    if len(have) == 1 and fits(next(iter(have))):
        return dict.fromkeys(names, next(iter(have)))
    whole = [v for v in index.get(names[0], []) if fits(v) and all(v in index.get(name, []) for name in names)]
    present = installed.get(names[0], "")
    best = max(
        whole, key=lambda v: (v == present, order(v), order(built_for(v) or "0"), -index[names[0]].index(v)), default=""
    )
    return dict.fromkeys(names, best) if best else {}


def _versions(pattern: str, index: Index, installed: Installed, driver: str, floors: Mapping[str, str]) -> list[str]:
    expression = re.escape(pattern).replace(re.escape("{minor}"), r"(\d+)-(\d+)")

    def minors(names: Iterable[str]) -> list[str]:
        found = [".".join(match.groups()) for match in (re.fullmatch(expression, name) for name in names) if match]
        return sorted(found, key=order)

    offered = [version for version in minors(index) if runs(driver, version, floors)]
    return minors(installed) or offered[-1:]


def _bound(bound: str, versions: list[str], present: str) -> str:
    exact = [version for version in versions if bound in (version, upstream(version))]
    if present in exact or (present and not exact and order(present) >= order(bound)):
        return present
    newer = [version for version in versions if order(version) >= order(bound)]
    return exact[0] if exact else min(newer, key=order, default="")


def _others(pattern: str, index: Index) -> str:
    stem = pattern.removesuffix("{minor}")
    there = sorted((toolkit_of(name) for name in index if name.startswith(stem) and toolkit_of(name)), key=order)
    return f"toolkits that are there: {', '.join(there)}" if there else _no_repository("")


def _no_repository(driver: str) -> str:
    told = f", with a toolkit that driver {driver} runs" if driver else ""
    return f"enable NVIDIA's CUDA repository for this distribution, or a mirror of it{told}"


def _refused(answer: dict[str, Any], problem: str, hint: str) -> dict[str, Any]:
    answer |= {"problem": problem, "hint": hint, "packages": {}, "remove": []}
    return answer


class FilterModule:
    """What Ansible takes from this file."""

    def filters(self) -> dict[str, Any]:
        return {
            "gpuprov_toolchain": decide,
            "gpuprov_toolchain_arguments": arguments,
            "gpuprov_toolchain_components": components,
            "gpuprov_toolchain_matching": matching,
            "gpuprov_toolchain_mine": mine,
            "gpuprov_toolchain_names": names,
            "gpuprov_toolchain_not_run": not_run,
        }
