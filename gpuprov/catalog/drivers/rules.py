"""Conversion of the catalogue's package sets into the resolver's rules (see `gpuprov.rules.resolve`)."""

from collections.abc import Iterable

from gpuprov.catalog.distributions import Distribution
from gpuprov.catalog.drivers import list_branches
from gpuprov.catalog.drivers.data import PackageSet, list_same_packages, read_drivers_file
from gpuprov.catalog.gpus import Flavour
from gpuprov.rules.package_lists import Rule

# Parts that must share one version; the kernel modules first. Parts with their own version line are not in the set.
PARTS = ("kernel-modules", "kernel-common", "firmware", "user-space", "mps", "persistence")

NO_LIMIT = 9999
FLAVOURS: tuple[Flavour, ...] = ("proprietary", "open")


def list_entries(
    distribution: Distribution, origin: str, part: str, flavour: Flavour | None = None
) -> list[PackageSet]:
    """The package sets of a part that an archive has for a distribution, or the distribution itself."""
    return [
        entry
        for entry in read_drivers_file().package_sets
        if entry.part == part
        and distribution.key in entry.distributions
        and entry.origin in list_same_packages(origin)
        and flavour in (None, entry.flavour or flavour)
    ]


def of_driver(package_sets: Iterable[PackageSet]) -> list[PackageSet]:
    """Return the package sets with the driver's version."""
    return [entry for entry in package_sets if entry.version == "driver"]


def make_rule(entry: PackageSet, name: str, like: str, *, companion: bool = False) -> Rule:
    """Return a rule. A name that contains the branch ends with the newest branch in the catalogue: a newer one cannot
    be looked up by name."""
    newest = max(int(branch.branch) for branch in list_branches())
    most = int(entry.max_branch or (newest if "{branch}" in name else NO_LIMIT))
    made: Rule = {"name": name, "min": int(entry.min_branch or 0), "max": most}
    if like:
        made["like"] = like
    if companion:
        made["companion"] = True
    return made


def list_names(rules: Iterable[Rule]) -> list[str]:
    """Return every name of the rules that can be known in advance."""
    known = [int(branch.branch) for branch in list_branches()]
    names: dict[str, None] = {}
    for entry in rules:
        if "{version}" in entry["name"]:
            continue
        numbers = known if "{branch}" in entry["name"] else [0]
        fits = [n for n in numbers if n == 0 or entry["min"] <= n <= entry["max"]]
        names |= {entry["name"].replace("{branch}", str(number)): None for number in fits}
    return list(names)
