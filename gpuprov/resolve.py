"""One driver version for which every needed package exists, and the module flavour. Standard library only.

Rendered projects carry this file as an Ansible filter plugin, so that `plan`, `apply` and a plain `ansible-playbook` run
decide by the same code. Input is text as the host's own tools print it; nothing here touches a host.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

# The first branch with open kernel modules, and the first where they are the default:
# https://github.com/NVIDIA/open-gpu-kernel-modules README
OPEN_SINCE = 515
DEFAULT_OPEN_SINCE = 560

# The one parameter that the module shows under another name than it takes:
# https://github.com/NVIDIA/open-gpu-kernel-modules/blob/main/kernel-open/nvidia/nv-reg.h (CUSTOM_NAME)
PARAMETER_NAMES = {"RmProfilingAdminOnly": "NVreg_RestrictProfilingToAdminUsers"}

Rules = Sequence[Mapping[str, Any]]
Followers = Sequence[Rules]
NO_FOLLOWER = "Debian has none: add NVIDIA's repository, or a mirror of it, to the host's package sources"


def upstream(version: str) -> str:
    """The driver version inside a package version: `535.309.01-0+deb12u1` -> `535.309.01`, `3:580.95.05-1.el9` -> `580.95.05`."""
    return version.partition(":")[2].partition("-")[0] if ":" in version else version.partition("-")[0]


def order(version: str) -> tuple[int, ...]:
    """Sort key of a driver version; a part that is no number counts as 0."""
    return tuple(int(part) if part.isdigit() else 0 for part in upstream(version).split("."))


def satisfies(version: str, wanted: str) -> bool:
    """Whether a package or driver version is what a spec asks for: `any`, a branch (`535`) or an exact version."""
    mine = upstream(version)
    return wanted in ("any", mine, mine.partition(".")[0])


def parse_madison(text: str) -> dict[str, list[str]]:
    """`apt-cache madison` -> package versions by name, newest first; source packages are left out."""
    versions: dict[str, list[str]] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == 3 and not cells[2].endswith("Sources") and cells[1] not in versions.setdefault(cells[0], []):
            versions[cells[0]].append(cells[1])
    return versions


def parse_installed(text: str) -> dict[str, str]:
    """`dpkg-query -W -f '${db:Status-Abbrev}|${Package}|${Version}|${source:Package}\\n'` -> installed versions by name."""
    installed = {}
    for line in text.splitlines():
        cells = line.split("|")
        if len(cells) >= 3 and cells[0][1:2] in "iWtFUH":
            installed[cells[1]] = cells[2]
    return installed


def flavour(wanted: str, pci_ids: list[str], table: dict[str, str], branch: str) -> dict[str, str]:
    """Which kernel modules: `{flavour, reason, problem}`. `table` says of a PCI id (`10de:2330`) what it needs:
    `open-required`, `proprietary-required` or `either`; ids that are not in it decide nothing."""
    number = int(branch) if branch.isdigit() else 0
    needs = {identifier: table[identifier] for identifier in pci_ids if identifier in table}
    must_open = [i for i, need in needs.items() if need == "open-required"]
    must_closed = [i for i, need in needs.items() if need == "proprietary-required"]
    problem = ""
    if must_open and must_closed:
        problem = f"GPU {must_open[0]} needs open kernel modules and GPU {must_closed[0]} proprietary ones; one host has one flavour"
    if wanted == "auto":
        if must_open:
            if not problem and 0 < number < OPEN_SINCE:
                problem = f"GPU {must_open[0]} runs with open modules only, and branch {branch} has none; the first is {OPEN_SINCE}"
            return {
                "flavour": "open",
                "reason": f"GPU {must_open[0]} runs with open kernel modules only",
                "problem": problem,
            }
        if must_closed:
            reason = f"GPU {must_closed[0]} has no GSP: proprietary modules only"
            return {"flavour": "proprietary", "reason": reason, "problem": problem}
        if number >= DEFAULT_OPEN_SINCE:
            reason = f"NVIDIA's default from branch {DEFAULT_OPEN_SINCE} on is open"
            return {"flavour": "open", "reason": reason, "problem": problem}
        reason = f"NVIDIA's default below branch {DEFAULT_OPEN_SINCE} is proprietary"
        return {"flavour": "proprietary", "reason": reason, "problem": problem}
    if wanted == "open" and must_closed:
        problem = f"kernel_modules is open, but GPU {must_closed[0]} has no GSP and runs with proprietary modules only"
    elif wanted == "open" and number and number < OPEN_SINCE:
        problem = f"kernel_modules is open, but branch {branch} has none; the first with open modules is {OPEN_SINCE}"
    elif wanted == "proprietary" and must_open:
        problem = f"kernel_modules is proprietary, but GPU {must_open[0]} runs with open modules only"
    return {"flavour": wanted, "reason": "asked for in the spec", "problem": problem}


def resolve(
    wanted: str,
    needed: list[str],
    index: dict[str, list[str]],
    installed: dict[str, str],
    beside: Followers = (),
) -> dict[str, Any]:
    """One version for the whole set: `{version, packages, kept, replaced, problem, hint}`.

    wanted: `any`, a branch or an exact version. needed: package names that must share one version. index: what the
    host's repositories offer. installed: what it has. An installed whole set that satisfies `wanted` is kept, so a second
    run never upgrades; a half set is completed at its module's version where the index still has all of it; otherwise
    the newest whole set is taken. beside: packages that must have the driver's version under names and revisions of their
    own, as rules for `follower`; `replaced` are the names that they had for other branches."""

    def followers(version: str) -> dict[str, str]:
        return dict(filter(all, (follower(version, rules, index, installed) for rules in beside)))

    def chosen(version: str, *, kept: bool) -> dict[str, Any]:
        packages = {**dict.fromkeys(needed, version), **followers(version)}
        replaced = [name for rules in beside for name in other_names(rules, installed) if name not in packages]
        return {**_found(version, packages, kept=kept), "replaced": replaced}

    have = {installed.get(name, "") for name in needed}
    if len(have) == 1 and "" not in have and satisfies(next(iter(have)), wanted):
        whole = next(iter(have))
        if len(followers(whole)) == len(beside):
            return chosen(whole, kept=True)
    offered = {version for name in needed for version in index.get(name, [])}
    whole_sets = [v for v in offered if all(v in index.get(name, []) for name in needed)]
    ranked = sorted(whole_sets, key=lambda v: (order(v), -_rank(v, needed, index)), reverse=True)
    ranked = [version for version in ranked if len(followers(version)) == len(beside)]
    fitting = [version for version in ranked if satisfies(version, wanted)]
    if fitting:
        present = installed.get(needed[0], "")
        return chosen(present if present in fitting else fitting[0], kept=False)
    return _missing(wanted, needed, index, offered, ranked, beside)


def follower(version: str, rules: Rules, index: dict[str, list[str]], installed: dict[str, str]) -> tuple[str, str]:
    """Name and package version of the package that follows a driver version; empty if there is none.

    rules: its names, each `{name, min, max}`: `{branch}` in a name is filled in, min and max are branches. An installed one
    that fits is kept; of several offered, the one whose package version is the driver's own wins.
    """
    for name in follower_names(rules, version):
        fits = [v for v in [installed.get(name, ""), *index.get(name, [])] if v and upstream(v) == upstream(version)]
        if fits:
            return name, fits[0] if installed.get(name) == fits[0] or version not in fits else version
    return "", ""


def follower_names(rules: Rules, version: str) -> list[str]:
    """The names that a following package can have for the branch of a version."""
    branch = upstream(version).partition(".")[0]
    number = int(branch) if branch.isdigit() else 0
    return list(dict.fromkeys(r["name"].replace("{branch}", branch) for r in rules if r["min"] <= number <= r["max"]))


def other_names(rules: Rules, installed: dict[str, str]) -> list[str]:
    """The installed packages that are the following package under any of its names."""
    patterns = {re.escape(rule["name"]).replace(r"\{branch\}", "[0-9]+") for rule in rules}
    return sorted(name for name in installed if any(re.fullmatch(pattern, name) for pattern in patterns))


def follow(version: str, rules: Rules, index: dict[str, list[str]], installed: dict[str, str]) -> dict[str, Any]:
    """The package that follows an installed driver: `{name, version, replaced, problem, hint}`."""
    name, chosen = follower(version, rules, index, installed)
    answer: dict[str, Any] = {"name": name, "version": chosen, "replaced": [], "problem": "", "hint": ""}
    if name:
        answer["replaced"] = [other for other in other_names(rules, installed) if other != name]
    else:
        wanted = " or ".join(follower_names(rules, version)) or "such a package"
        answer["problem"] = (
            f"the host's repositories have no {wanted} {upstream(version)}, the installed driver's version"
        )
        there = {upstream(v) for n, found in index.items() for v in found if other_names(rules, {n: v})}
        listed = ", ".join(sorted(there, key=order, reverse=True))
        advice = f"versions that are there: {listed}; name one of them as nvidia_driver.version"
        answer["hint"] = advice if there else NO_FOLLOWER
    return answer


def decide(
    wanted: str,
    modules: str,
    pci_ids: list[str],
    table: dict[str, str],
    sets: dict[str, list[str]],
    index: dict[str, list[str]],
    installed: dict[str, str],
    *,
    beside: Followers = (),
) -> dict[str, Any]:
    """Flavour and version together: `{flavour, reason, version, packages, kept, replaced, problem, hint}`.

    modules: `auto`, `open` or `proprietary`. sets: the packages that must share one version, by flavour, the package of
    the kernel modules first. With `any` version, what is installed decides branch and flavour (unless a GPU does the latter),
    else the newest that is offered.
    """
    branch = upstream(wanted).partition(".")[0]
    if wanted == "any":
        kernels = [names[0] for names in sets.values()]
        known = [installed[name] for name in kernels if name in installed]
        known = known or [version for name in kernels for version in index.get(name, [])]
        branch = str(max((order(version)[0] for version in known), default=0))
    choice = flavour(modules, pci_ids, table, branch)
    present = [kind for kind, names in sets.items() if names[0] in installed]
    decided_by_gpu = any(table.get(identifier, "either") != "either" for identifier in pci_ids)
    if wanted == "any" and modules == "auto" and len(present) == 1 and not decided_by_gpu:
        choice = {"flavour": present[0], "reason": "it is installed, and any version will do", "problem": ""}
    if choice["problem"]:
        hint = "leave kernel_modules at auto, or name a branch that the GPU and the flavour both have"
        return {**choice, "version": "", "packages": {}, "kept": False, "replaced": [], "hint": hint}
    return {**choice, **resolve(wanted, sets[choice["flavour"]], index, installed, beside)}


def _rank(version: str, needed: list[str], index: dict[str, list[str]]) -> int:
    return index[needed[0]].index(version)


def _found(version: str, packages: dict[str, str], *, kept: bool) -> dict[str, Any]:
    return {"version": upstream(version), "packages": packages, "kept": kept, "replaced": [], "problem": "", "hint": ""}


def _missing(
    wanted: str, needed: list[str], index: dict[str, list[str]], offered: set[str], ranked: list[str], beside: Followers
) -> dict[str, Any]:
    partial = sorted((v for v in offered if satisfies(v, wanted)), key=order, reverse=True)
    unfollowed = [rules for rules in beside if partial and follower(partial[0], rules, index, {}) == ("", "")]
    if partial:
        lacking = [name for name in needed if partial[0] not in index.get(name, [])]
        gaps = [f"{', '.join(lacking)} {partial[0]}"] if lacking else []
        gaps += [f"{' or '.join(follower_names(rules, partial[0]))} {upstream(partial[0])}" for rules in unfollowed]
        problem = f"version {upstream(partial[0])} is not whole in the host's repositories: no {', and no '.join(gaps)}"
    elif offered:
        problem = f'no driver version matches "{wanted}" in the host\'s repositories'
    else:
        problem = f"the host's repositories have none of {', '.join(needed)}"
    if ranked:
        number = order(wanted if re.fullmatch(r"[0-9.]+", wanted) else "0")
        nearest = min(ranked, key=lambda v: [abs(a - b) for a, b in zip(order(v), number, strict=False)])
        listed = ", ".join(dict.fromkeys(upstream(v) for v in ranked))
        hint = f"the nearest version with the whole set is {upstream(nearest)}; whole sets: {listed}"
    elif unfollowed:
        hint = NO_FOLLOWER
    else:
        hint = "run apt-get update, and enable the components contrib, non-free and non-free-firmware (Debian)"
    return {"version": "", "packages": {}, "kept": False, "replaced": [], "problem": problem, "hint": hint}


def shown_name(name: str) -> str:
    """The parameter that /proc/driver/nvidia/params shows as `name` (with or without the prefix NVreg_)."""
    bare = name.removeprefix("NVreg_")
    return PARAMETER_NAMES.get(bare, f"NVreg_{bare}")


def shown_value(value: object) -> str:
    """A parameter's value as the module shows it: C notation (0660, 0x10, -1) becomes an unsigned 32-bit decimal."""
    text = str(int(value)) if isinstance(value, bool) else str(value)
    match = re.fullmatch(r"(-?)(?:0x([0-9a-f]+)|0([0-7]+)|([0-9]+))", text.lower())
    if not match:
        return text.strip('"')
    sign, hexadecimal, octal, decimal = match.groups()
    number = int(hexadecimal, 16) if hexadecimal else int(octal, 8) if octal else int(decimal)
    return str((-number if sign else number) % 2**32)


def reload_reasons(loaded: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """Why the loaded driver must leave the kernel; nothing if it may stay or none is loaded.

    Both have `version`, `flavour` and `parameters`: `loaded` as the kernel shows them, `wanted` as the spec says. A parameter
    that the loaded module does not show is no reason.
    """
    if not loaded["version"]:
        return []
    reasons = []
    for what in ("version", "flavour"):
        if wanted[what] and loaded[what] != wanted[what]:
            reasons.append(f"the loaded driver's {what} is {loaded[what]}, {wanted[what]} is wanted")
    shown = {shown_name(name): shown_value(value) for name, value in loaded["parameters"].items()}
    for name, value in wanted["parameters"].items():
        if name in shown and shown[name] != shown_value(value):
            reasons.append(f"the loaded module has {name}={shown[name]}, {shown_value(value)} is wanted")
    return reasons


class FilterModule:
    """What Ansible loads: the functions above as filters of the rendered project."""

    def filters(self) -> dict[str, Any]:
        return {
            "gpuprov_decide": decide,
            "gpuprov_follow": follow,
            "gpuprov_installed": parse_installed,
            "gpuprov_madison": parse_madison,
            "gpuprov_reload_reasons": reload_reasons,
            "gpuprov_resolve": resolve,
        }
