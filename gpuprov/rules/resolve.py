"""Chooses one driver version for which every needed package exists, and the module flavour. Standard library only.

Checks and roles both decide by it. The first rule of a set that fits a branch names the kernel modules' package. `{driver}` in a
name: `{version}`, if offered.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from functools import cache, lru_cache, partial
from itertools import chain, product

from gpuprov.rules.package_lists import Answer, Choice, Follower, Rule

# The first branch with open kernel modules, and the one where they became the default: open-gpu-kernel-modules' README
OPEN_SINCE, DEFAULT_OPEN_SINCE, NO_LIMIT = 515, 560, 9999
# Device ids are given out by generation: those below OLDER's have no GSP, which open modules need, and a branch that is their last;
# those from NEWER on are Blackwell and later, which proprietary modules do not drive.
OLDER, NEWER = ((0x1340, 470), (0x1E00, 580)), 0x2900

Rules = Sequence[Rule]
Sets = Mapping[str, Rules]
Names = dict[str, str]
Index = Mapping[str, list[str]]
PLACES = {"branch": r"\d+", "kernel": r"\d+\.\S+", "kernel_flavour": r"(?!open-)[a-z]\S*"}
FILLED = partial(re.sub, r"\\{(\w+)\\}", lambda place: PLACES.get(place[1], r"[\d.]+"))
PATTERN = lru_cache(maxsize=256)(lambda names: re.compile(FILLED("|".join(map(re.escape, names)) or "(?!)")))
NO_FOLLOWER = "NVIDIA's repository has it: nvidia_driver: {source: nvidia}, or {source: mirror, repository: ...} for a mirror of it"
FLAVOURS = "leave kernel_modules at auto, or name a branch that the GPU and the flavour both have; source runfile has both flavours"
NO_DRIVER = "fetch the package lists, or take NVIDIA's repository: nvidia_driver: {source: nvidia}"


def upstream(version: str) -> str:  # `535.309.01-0+deb12u1` -> `535.309.01`, `3:580.95.05-1.el9` -> `580.95.05`
    return version.rpartition(":")[2].partition("-")[0]


@lru_cache(maxsize=4096)
def order(version: str) -> tuple[int, ...]:  # a part that is not a number counts as 0
    return tuple(int(part) if re.fullmatch("[0-9]{1,18}", part) else 0 for part in upstream(version).split("."))


def satisfies(version: str, requested: str, floor: str = "") -> bool:
    """True if a version matches the spec: `any`, a branch (`535`) or an exact version, and is no older than floor."""
    base = upstream(version)
    return requested in ("any", base, base.partition(".")[0]) and (not floor or order(base) >= order(floor))


def last_branch(pci_ids: Collection[str]) -> int:
    """Return the last branch that supports all of these GPUs; NO_LIMIT if none is older than Turing."""
    return min((last for i in pci_ids for below, last in OLDER if "10de:" < i < f"10de:{below:04x}"), default=NO_LIMIT)


def flavour(requested: str, pci_ids: list[str], table: Names, branch: str) -> Choice:
    """Choose the kernel modules. `table`: the requirement of a PCI id (`10de:2330`): `open-required`,
    `proprietary-required` or `either`; an id missing from it decides if it is older than Turing or newer than Hopper."""
    number, old = order(branch)[0], [i for i in pci_ids if last_branch([i]) < NO_LIMIT]
    new = [i for i in pci_ids if f"10de:{NEWER:04x}" <= i < "10de:g"]
    must_open = [i for i in pci_ids if table.get(i, "open-required" * (i in new)) == "open-required"]
    must_closed = [i for i in pci_ids if table.get(i, "proprietary-required" * (i in old)) == "proprietary-required"]
    kind, reason, problem = requested, "asked for in the spec", ""
    if requested == "auto":
        kind, reason = "proprietary", f"NVIDIA's default below branch {DEFAULT_OPEN_SINCE} is proprietary"
        if must_open:
            kind, reason = "open", f"GPU {must_open[0]} runs with open kernel modules only"
        elif must_closed:
            reason = f"GPU {must_closed[0]} has no GSP: proprietary modules only"
        elif number >= DEFAULT_OPEN_SINCE:
            kind, reason = "open", f"NVIDIA's default from branch {DEFAULT_OPEN_SINCE} on is open"
    asks = f"kernel_modules is {kind}" if requested != "auto" else reason
    if must_open and must_closed:
        problem = (
            f"GPU {must_open[0]} needs open modules, GPU {must_closed[0]} proprietary ones; a host has one flavour"
        )
    elif number > last_branch(old):
        problem = f"GPU {old[0]} is not supported by branch {branch}: {last_branch(old)} is the last"
    elif wrong := must_closed if kind == "open" else must_open:
        needs = "has no GSP and runs with proprietary" if kind == "open" else "runs with open"
        problem = f"{asks}, but GPU {wrong[0]} {needs} modules only"
    elif kind == "open" and 0 < number < OPEN_SINCE:
        problem = f"{asks}, and branch {branch} has none; the first is {OPEN_SINCE}"
    return {"flavour": kind, "reason": reason, "problem": problem}


def is_of(rule: Rule, package_version: str, version: str) -> bool:
    """True if a package version is from the rule's archive, and of this driver version."""
    return upstream(package_version) == version and re.fullmatch(rule.get("like", ".*"), package_version) is not None


def fitting(rules: Rules, version: str, *, companions: bool = False) -> dict[str, Rule]:
    """Return the rules for the branch of a version, by the package's name in that branch; the kernel modules' first."""
    (number, *_), base, branch = order(version), upstream(version), upstream(version).partition(".")[0]
    now = [r for r in rules if r["min"] <= number <= r["max"] and bool(r.get("companion")) == companions]
    return {r["name"].replace("{branch}", branch).replace("{version}", base).replace("{driver}", base): r for r in now}


def kernel_package(sets: Sets, installed: Names) -> Names:
    """Return the installed packages of kernel modules, by flavour; a host should have one."""
    packages: Names = {}
    of_version = cache(lambda kind, version: next(iter(fitting(sets[kind], version).items()), ("", Rule())))
    for kind, name in product(sets, other_names([*chain(*sets.values())], installed)):
        first, rule = of_version(kind, installed[name])
        proven = "proof" not in rule or other_names([{"name": proof} for proof in rule["proof"]], installed)
        if first == name and proven and is_of(rule, installed[name], upstream(installed[name])):
            packages[kind] = name
    return packages


def other_names(rules: Rules, installed: Names) -> list[str]:
    """Return the installed packages with one of the rules' names, of whatever branch."""
    return sorted(filter(PATTERN(tuple([rule["name"] for rule in rules])).fullmatch, installed))


def of_another(others: Rules, installed: Names) -> list[str]:
    """Return installed packages of another archive's set: names with a `mark`, which are unique to it, and its others in the same
    driver version."""
    marked = other_names([rule for rule in others if rule.get("mark")], installed)
    theirs = {upstream(installed[name]) for name in marked}
    return [name for name in other_names(others, installed) if name in marked or upstream(installed[name]) in theirs]


def follower(version: str, rules: Rules, index: Index, installed: Names, driver: Collection[str]) -> tuple[str, str]:
    """Return name and package version of the package that follows a driver version; empty if there is none.

    driver: its packages. A rule may name one that the package `needs`. An installed one that fits is kept; of several offered, the one
    whose package version is the driver's own wins."""
    branch = upstream(version).partition(".")[0]
    usable = [rule for rule in rules if rule.get("needs", "").replace("{branch}", branch) in ("", *driver)]
    for name in fitting(usable, version):
        fits = [v for v in [installed.get(name, ""), *index.get(name, [])] if v and upstream(v) == upstream(version)]
        if fits:
            return name, fits[0] if installed.get(name) == fits[0] or version not in fits else version
    return "", ""


def follow(version: str, rules: Rules, index: Index, installed: Names) -> Follower:
    """Return the package that follows an installed driver."""
    name, chosen = follower(version, rules, index, installed, installed)
    answer: Follower = {"name": name, "version": chosen, "replaced": [], "problem": "", "fix": ""}
    if name:
        return {**answer, "replaced": [other for other in other_names(rules, installed) if other != name]}
    expected = f"{' or '.join(fitting(rules, version)) or 'such a package'} {upstream(version)}, the installed driver's version"
    problem = f"the host's repositories have no {expected}"
    available = ", ".join(_list_upstreams({n: offered for n, offered in index.items() if other_names(rules, {n: ""})}))
    advice = f"versions that are there: {available}; name one of them as nvidia_driver.version"
    return {**answer, "problem": problem, "fix": advice if available else NO_FOLLOWER}


def whole_sets(rules: Rules, index: Index) -> list[Names]:
    """Return the complete sets on offer, newest first: versions by package name, the kernel modules' first.

    For each driver version: sets with one package version throughout; if there is none, but all packages are offered, the newest of
    each. A name that contains the version need not be offered: the others depend on it."""
    whole: list[Names] = []
    for base in _list_upstreams(index):
        names = fitting(rules, base)
        offered = {n: [v for v in index.get(n, []) if is_of(r, v, base)] for n, r in names.items()}
        bound = [name for name in names if "{version}" in names[name]["name"] and not offered[name]]
        unbound = [name for name in names if name not in bound]
        if not unbound or not all(offered[name] for name in unbound):
            continue
        same = [v for v in offered[unbound[0]] if all(v in offered[name] for name in unbound)]
        sets = [dict.fromkeys(names, v) for v in same] or [{n: v[0] for n, v in offered.items() if v}]
        whole += [{name: versions.get(name, versions[unbound[0]]) for name in names} for versions in sets]
    return whole


def installed_set(rules: Rules, installed: Names) -> Names:
    """Return the installed complete set, the newest if there are several; empty if there is none."""
    sets = whole_sets(rules, {name: [version] for name, version in installed.items()})
    return next((names for names in sets if all(installed.get(n) == version for n, version in names.items())), {})


def resolve(requested: str, needed: Sequence[str], index: Index, installed: Names) -> Answer:
    """Run `pick` for any software whose packages have fixed names and must share one version."""
    return pick(requested, {"": [{"name": name, "min": 0, "max": NO_LIMIT} for name in needed]}, "", index, installed)


def pick(requested: str, sets: Sets, kind: str, index: Index, installed: Names, beside: Sequence[Rules] = (), floor: str = "", *,
         others: Rules = ()) -> Answer:  # fmt: skip
    """Choose one version for the complete set of a flavour.

    wanted: `any`, a branch or an exact version; floor: the oldest acceptable one. An installed complete set that satisfies is kept, so
    a second run never upgrades; an incomplete set is completed in its module's version if that is offered; else the newest is taken.
    beside: packages that must have the driver's version under names and revisions of their own, as rules for `follower`. others:
    another archive's set. replaced: installed packages with the names of other branches, flavours and archives."""
    rules = sets[kind]

    def followers(names: Names) -> Names:
        return dict(filter(all, (follower(_first(names), each, index, installed, names) for each in beside)))

    offered = [names for names in whole_sets(rules, index) if len(followers(names)) == len(beside)]
    will_do = [names for names in offered if satisfies(_first(names), requested, floor)]
    have = installed_set(rules, installed)
    kept = bool(have) and satisfies(_first(have), requested, floor) and len(followers(have)) == len(beside)
    if kept and len(set(have.values())) > 1:  # mixed from two archives; stays only if neither has it whole
        kept = not any(len(set(n.values())) == 1 and upstream(_first(n)) == upstream(_first(have)) for n in will_do)
    if not kept and not will_do:
        return _missing(requested, rules, index, offered, beside, floor)
    present = [installed[name] for name in kernel_package(sets, installed).values()]
    near = sorted(will_do, key=lambda n: (_first(n) not in present, upstream(_first(n)) not in map(upstream, present)))
    version = _first(chosen := have if kept else near[0])
    packages = {**chosen, **_companions(rules, version, index, installed), **followers(chosen)}
    known = [rule for each in (*sets.values(), *beside) for rule in each]
    stay = {*packages, *fitting(rules, version, companions=True)}
    replaced = sorted({*other_names(known, installed), *of_another(others, installed)} - stay)
    return {**_make_answer(version, packages), "kept": kept, "replaced": replaced}


def decide(requested: str, modules: str, pci_ids: list[str], table: Names, sets: Sets, index: Index, installed: Names, *,
           beside: Sequence[Rules] = (), cuda: str = "", others: Rules = (), first: Sequence[str] = ()) -> Answer:  # fmt: skip
    """Choose flavour and version together.

    modules: `auto`, `open` or `proprietary`. sets: the rules by flavour. cuda: the oldest driver that runs the CUDA of the spec, if it
    names one. With `any` version, the installed driver decides branch and flavour (unless a GPU does the latter), else the newest
    offered version of the branches that come `first`, else of those that every GPU runs with."""
    wishes, present, last = [requested], kernel_package(sets, installed), last_branch(pci_ids)
    if requested == "any":
        current = {upstream(installed[name]) for name in present.values()}
        known = [v for v in {*current, *kernel_versions(sets, index)} if satisfies(v, requested, cuda)]
        ranked = sorted(known, key=lambda v: (v in current, v.partition(".")[0] in first, order(v)), reverse=True)
        wishes = [v.partition(".")[0] for v in ranked if order(v)[0] <= last] or [str(last) if known else requested]
    choice = flavour(modules, pci_ids, table, upstream(wishes[0]).partition(".")[0])
    free = last == NO_LIMIT and {table.get(identifier, "either") for identifier in pci_ids} <= {"either"}
    if free and (requested, modules, len(present)) == ("any", "auto", 1):
        choice = {"flavour": next(iter(present)), "reason": "it is installed, and any version will do", "problem": ""}
    having = [each for each in sets if (sets[each] if requested == "any" else fitting(sets[each], requested))]
    if not choice["problem"] and having and choice["flavour"] not in having:
        of = f" of branch {upstream(requested).partition('.')[0]}" if sets[choice["flavour"]] else ""
        choice["problem"] = (
            f"{choice['reason']}, and this distribution's packages{of} have no {choice['flavour']} modules"
        )
    if choice["problem"]:
        return {**_make_answer("", {}), **choice, "fix": FLAVOURS}
    kind, each = choice["flavour"], dict.fromkeys(wishes)
    tries = (pick(candidate, sets, kind, index, installed, beside, cuda, others=others) for candidate in each)
    best = next(tries)  # its problem is the one that is reported
    return {**choice, **next((answer for answer in chain((best,), tries) if not answer["problem"]), best)}


def _list_upstreams(index: Index) -> list[str]:
    return sorted({upstream(v) for versions in index.values() for v in versions}, key=order, reverse=True)


def _first(names: Names) -> str:
    return next(iter(names.values()))


def kernel_versions(sets: Sets, index: Index) -> list[str]:
    """Return every version for which some flavour's kernel modules are offered."""
    names = [(v, next(iter(fitting(rules, v)), "")) for rules in sets.values() for v in _list_upstreams(index)]
    return [version for version, name in names if version in map(upstream, index.get(name, []))]


def _companions(rules: Rules, version: str, index: Index, installed: Names) -> Names:
    """Return installed packages beside the set, of this or another branch, in the version of the set; left out if there is none."""
    moved: Names = {}
    for name, rule in fitting(rules, version, companions=True).items():
        versions = [installed.get(name, ""), *index.get(name, [])] if other_names([rule], installed) else []
        fits = [v for v in versions if is_of(rule, v, upstream(version))]
        moved |= {name: version if version in fits else fits[0]} if fits else {}
    return moved


def _make_answer(version: str, packages: Names) -> Answer:
    base = upstream(version)
    answer: Answer = {"version": base, "branch": base.partition(".")[0], "packages": packages}
    return {**answer, "kept": False, "replaced": [], "problem": "", "fix": ""}


def _missing(requested: str, rules: Rules, index: Index, offered: list[Names], beside: Sequence[Rules],
             floor: str) -> Answer:  # fmt: skip
    """Return why there is no version, with the nearest complete one."""
    names = {version: fitting(rules, version) for version in _list_upstreams(index)}
    by_version = {
        v: {n: version for n in names[v] for version in index.get(n, [])[::-1] if upstream(version) == v} for v in names
    }
    seen = {version: have for version, have in by_version.items() if have}
    partial = [version for version in seen if satisfies(version, requested, floor)]
    matching = fitting(rules, partial[0]) if partial else {}
    unfollowed = [each for each in beside if partial and follower(partial[0], each, index, {}, matching) == ("", "")]
    listed = ", ".join(dict.fromkeys(upstream(_first(names)) for names in offered))
    if partial:
        version = _first(seen[partial[0]])
        lacking = [n for n, rule in matching.items() if n not in seen[partial[0]] and "{version}" not in rule["name"]]
        gaps = [f"{', '.join(lacking)} {version}"] if lacking else []
        gaps += [f"{' or '.join(fitting(each, partial[0]))} {partial[0]}" for each in unfollowed]
        problem = f"version {partial[0]} is incomplete in the host's repositories: no {', and no '.join(gaps)}"
    elif floor and any(satisfies(version, requested) for version in seen):
        problem = f"the host's repositories have no driver {floor} or newer, which the CUDA of the spec needs"
    elif seen:
        problem = f'no driver version matches "{requested}" in the host\'s repositories'
    else:
        needed = fitting(rules, requested) or [rule["name"] for rule in rules if not rule.get("companion")]
        problem = f"the host's repositories have none of {', '.join(needed).replace('{branch}', 'BRANCH')}"
    fix = NO_FOLLOWER if unfollowed else next((rule["fix"] for rule in rules if "fix" in rule), NO_DRIVER)
    if listed:
        number = order(requested if re.fullmatch(r"[0-9.]+", requested) else floor or "0")
        nearest = min(map(_first, offered), key=lambda v: [abs(a - b) for a, b in zip(order(v), number, strict=False)])
        fix = f"the nearest version with the whole set is {upstream(nearest)}; whole sets: {listed}"
    return {**_make_answer("", {}), "problem": problem, "fix": fix}
