"""The driver's packages by distribution and source, as rules for the resolver and the roles."""

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import cache
from typing import Literal

import msgspec

from gpuprov.catalog.distributions import Distribution, find_distribution
from gpuprov.catalog.drivers.data import PackageSet, find_origin
from gpuprov.catalog.drivers.rules import FLAVOURS, NO_LIMIT, PARTS, list_entries, list_names, make_rule, of_driver
from gpuprov.catalog.drivers.traits import PREBUILT, TRAITS
from gpuprov.catalog.gpus import Flavour, list_gpus
from gpuprov.catalog.packages import list_origins
from gpuprov.host_code.clients import OURS
from gpuprov.rules import resolve
from gpuprov.rules.package_lists import Rule
from gpuprov.spec.model import Site

# The distribution's archive, NVIDIA's repository, the site's mirror of the latter; or .run files alone, if no packages
# are confirmed.
Source = Literal["distribution", "nvidia", "mirror", "runfile"]
SOURCES: tuple[Source, ...] = ("distribution", "nvidia", "mirror", "runfile")

# Ways in which a host gets its kernel modules: it builds them, or installs modules prebuilt for each of its kernels.
BUILDS = ("dkms", "precompiled")
# Names of the kernel module, by distribution; modprobe.d accepts options under each.
MODULE_NAMES = ("nvidia", "nvidia-current", "nvidia-current-open")
# Services that hold GPUs, may be stopped for a driver change, and are started again afterwards. Fabric Manager's guide
# requires DCGM and Fabric Manager to be stopped before a reset; nvidia-persistenced keeps the module in use. An
# exporter is part of DCGM's unit: it comes before it, so that it is recorded as running. A name may be a pattern of a
# template's instances, meaning the running ones.
GPU_SERVICES = [
    "gdm.service",
    "gdm3.service",
    "lightdm.service",
    "sddm.service",
    "gpuprov-mps@*.service",
    "nvidia-persistenced.service",
    "nvidia-gridd.service",
    "nvidia-powerd.service",
    "nvidia-topologyd.service",
    "nvsm*.service",
    "nvidia-dcgm-exporter.service",
    "dcgm-exporter.service",
    "nvidia-dcgm.service",
    "dcgm.service",
    "nvidia-imex.service",
    "nvidia-fabricmanager.service",
]


def list_gpu_services(site: Site) -> list[str]:
    """Return the services that the site names instead (also as Ansible takes a list: names with commas between), or
    GPU_SERVICES."""
    given = site.get("host_gpu_services", GPU_SERVICES)
    named = given.split(",") if isinstance(given, str) else given if isinstance(given, list | tuple) else GPU_SERVICES
    return [name for unit in named if (name := str(unit).strip())]  # an empty one would be every process without a unit


def is_gpu_service(unit: str, site: Site) -> bool:
    """Return whether a unit that holds a GPU is a known GPU service or gpuprov's own, rather than a user's work."""
    return any(fnmatchcase(unit, name) for name in (OURS, *list_gpu_services(site)))


class DriverPackages(msgspec.Struct, frozen=True, kw_only=True):
    """The packages of one distribution and source.

    `proprietary` and `open`: rules `{name, min, max}` of packages that must share one version, kernel modules first
    (see `gpuprov.rules.resolve`). `extra`: names with a version line of their own. `ask`: every name to look up in an
    index. `others`: rules of the set that another source has for this distribution, under names that are not in this
    one's; `mark` is on those that no other archive has, `built` on those of this source whose modules are built in
    another way. `sources` and `conflicts`: patterns of source packages that the set is built from, and of packages that
    install another driver. `modules`: the kernel module's name on disk by flavour, for modprobe and modinfo. `streams`:
    dnf's module stream by flavour. `pin`: globs of names that are only permitted in the set's version. `headers`
    (`{kernel}` is a kernel's release) and `dkms`: requirements of a module build; `compilers`: further requirements, by
    flavour. `precompiled`: names of packages of modules for one kernel, by flavour; if there are some, the set is for a
    host that builds none (see `gpuprov.rules.package_lists.precompiled_sets`). `builds_from`: the fix for a host
    without DKMS on offer.
    """

    proprietary: tuple[Rule, ...]
    open: tuple[Rule, ...]
    others: tuple[Rule, ...]
    extra: tuple[str, ...]
    ask: tuple[str, ...]
    sources: tuple[str, ...]
    conflicts: tuple[str, ...]
    modules: dict[str, str]
    streams: dict[str, str]
    pin: tuple[str, ...]
    headers: tuple[str, ...]
    dkms: tuple[str, ...]
    builds_from: str
    compilers: dict[str, tuple[str, ...]] = {}
    precompiled: dict[str, tuple[str, ...]] = {}

    @property
    def sets(self) -> dict[str, tuple[Rule, ...]]:
        """Return the rules by flavour."""
        return {"proprietary": self.proprietary, "open": self.open}

    def foreign(self, name: str, source_package: str) -> bool:
        """Return whether a package of this name and source package belongs to another driver, or only to another
        source's set."""
        marked = [rule for rule in self.others if rule.get("mark")]
        conflicts = any(re.fullmatch(p, name) for p in self.conflicts) and not self.of_source(source_package)
        return conflicts or bool(resolve.other_names(marked, {name: ""}))

    def built_otherwise(self, installed: dict[str, str]) -> list[str]:
        """List the installed packages of this source that provide its modules in the other way, precompiled or by
        DKMS."""
        return resolve.other_names([entry for entry in self.others if entry.get("built")], installed)

    def of_source(self, source_package: str, version: str = "") -> bool:
        """Return whether a package of this source package, and of this version, belongs to the driver."""
        # Packages that NVIDIA ships beside it with versions of their own do not: nvidia-driver-selinux 0.1, which
        # nvidia-kmod-common of EL requires from 610 on.
        like = not version or re.match(r"([0-9]+:)?[0-9]{3}\.[0-9]", version)
        return bool(like) and any(re.fullmatch(pattern, source_package) for pattern in self.sources)


def pick_source(distribution: Distribution) -> Source:
    """Return the meaning of `auto`: the distribution's own archive if it has a driver, else NVIDIA's repository."""
    return list_sources(distribution)[0]


def list_sources(distribution: Distribution) -> tuple[Source, ...]:
    """Return the sources from which the driver can be installed on a distribution."""
    if not list_origins(distribution.key):
        return ("runfile",)
    return SOURCES[:3] if get_archive(distribution) else SOURCES[1:3]


def get_archive(distribution: Distribution) -> str:
    """Return the distribution's own archive that has a driver; "" if there is none."""
    return next((archive.key for archive in list_origins(distribution.key) if not archive.url), "")


@cache
def find_packages(os_id: str, version_id: str, source: str = "auto", build: str = "dkms") -> DriverPackages | None:
    """Return the packages for a distribution in /etc/os-release; None if their names are not known, or there are
    none from that source, or no precompiled modules there."""
    distribution = find_distribution(os_id, version_id)
    if distribution is None or distribution.support == "none":
        return None
    chosen = pick_source(distribution) if source == "auto" else next((s for s in SOURCES if s == source), None)
    if not chosen or chosen not in list_sources(distribution):
        return None
    return build_precompiled(distribution, chosen) if build == "precompiled" else build_packages(distribution, chosen)


def _find_origin(distribution: Distribution, source: Source) -> str:
    return get_archive(distribution) if source == "distribution" else "runfile" if source == "runfile" else "nvidia"


@cache
def build_packages(distribution: Distribution, source: Source) -> DriverPackages:
    """Return the set of a source, and the names in other sources' sets."""
    driver_set = build_set(distribution, _find_origin(distribution, source))
    known = {rule["name"] for rules in driver_set.sets.values() for rule in rules} | {*driver_set.extra}
    beside = {_find_origin(distribution, other) for other in list_sources(distribution)} - {
        _find_origin(distribution, source)
    }
    foreign = {
        rule["name"]: rule | ({"mark": True} if is_mark(rule["name"], driver_set.conflicts) else {})
        for origin in sorted(beside)
        for rules in build_set(distribution, origin).sets.values()
        for rule in rules
        if rule["name"] not in known and not rule.get("companion")
    }
    prebuilt = list_prebuilt_names(distribution, _find_origin(distribution, source))
    foreign |= {name: {"name": name, "min": 0, "max": NO_LIMIT, "mark": True, "built": True} for name in prebuilt}
    return msgspec.structs.replace(driver_set, others=tuple(foreign.values()))


@cache
def build_precompiled(distribution: Distribution, source: Source) -> DriverPackages | None:
    """Return the set for a host that installs modules instead of building them; None if the source has no such
    modules."""
    base, origin = build_packages(distribution, source), _find_origin(distribution, source)
    entries = list_entries(distribution, origin, "prebuilt-modules")
    if not entries:
        return None
    names, beside = group_by_flavour(entries), list_prebuilt_names(distribution, origin)
    modules = [entry for entry in of_driver(list_entries(distribution, origin, PARTS[0])) if entry.flavour]
    built = {
        name: make_rule(entry, name, "") | Rule(mark=True, built=True) for entry in modules for name in entry.packages
    }
    asked_for = resolve.other_names(list(built.values()), dict.fromkeys(base.ask, ""))

    def rules(kind: Flavour) -> tuple[Rule, ...]:
        first, *rest = (entry for entry in base.sets[kind] if entry["name"] not in built)
        # They follow the newest kernel, so they leave: their name fits no version.
        leaving = [name for entry in entries for name in entry.alternatives]
        last: list[Rule] = [{"name": name, "min": 0, "max": NO_LIMIT, "companion": True} for name in leaving]
        return ({**first, "proof": list(names.get(kind, ()))}, *rest, *last)

    return msgspec.structs.replace(
        base,
        proprietary=rules("proprietary"),
        open=rules("open"),
        others=(*(entry for entry in base.others if entry["name"] not in beside), *built.values()),
        ask=tuple(name for name in base.ask if name not in asked_for),
        conflicts=tuple(pattern for pattern in base.conflicts if pattern not in PREBUILT),
        streams={str(entry.flavour): entry.module_stream for entry in entries if entry.module_stream},
        headers=(),
        dkms=(),
        compilers={},
        precompiled=names,
    )


def group_by_flavour(package_sets: Iterable[PackageSet]) -> dict[str, tuple[str, ...]]:
    """Return names by flavour; if one contains the driver's version, that one is chosen."""
    return {
        str(entry.flavour): tuple(n.replace("{version}", "{driver}") for n in entry.packages) for entry in package_sets
    }


def list_prebuilt_names(distribution: Distribution, origin: str) -> list[str]:
    """Return all names of precompiled modules."""
    entries = [e for part in ("prebuilt-modules", "prebuilt-objects") for e in list_entries(distribution, origin, part)]
    return [
        *(name for entry in entries for name in group_by_flavour([entry])[str(entry.flavour)]),
        *(name for entry in entries for name in entry.alternatives),
    ]


def is_mark(name: str, conflicts: tuple[str, ...]) -> bool:
    """Return whether packages under a rule's name identify another source's driver."""
    return any(re.fullmatch(p, name.replace("{branch}", "580").replace("{version}", "580.95.05")) for p in conflicts)


def build_set(distribution: Distribution, origin: str) -> DriverPackages:
    traits, archive = TRAITS[(distribution.id, origin)], find_origin(origin)
    like = str(traits.get("versions", ""))

    def pick(part: str, flavour: Flavour | None = None) -> list[PackageSet]:
        return list_entries(distribution, origin, part, flavour)

    def rules(kind: Flavour) -> tuple[Rule, ...]:
        if not pick(PARTS[0], kind):
            return ()
        main = [make_rule(e, name, like) for part in PARTS for e in of_driver(pick(part, kind)) for name in e.packages]
        if main and archive and archive.enabled_by:
            main[0]["fix"] = archive.enabled_by
        more = [make_rule(e, name, like, companion=True) for e in pick("companions", kind) for name in e.packages]
        return select_with_modules([*main, *more], [name for e in pick(PARTS[0], kind) for name in e.packages])

    def names(part: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for entry in pick(part) for name in entry.packages))

    modules = {f: entry for f in FLAVOURS for entry in pick(PARTS[0], f)[:1]}
    sets = {flavour: rules(flavour) for flavour in FLAVOURS}
    return DriverPackages(
        proprietary=sets["proprietary"],
        open=sets["open"],
        others=(),
        extra=names("modprobe"),
        ask=tuple(dict.fromkeys((*list_names((*sets["proprietary"], *sets["open"])), *names("modprobe")))),
        sources=traits["sources"],
        conflicts=traits["conflicts"],
        modules={f: (modules[f].module_name if f in modules else "") or "nvidia" for f in FLAVOURS},
        streams={
            f: e.module_stream for f, e in modules.items() if e.module_stream and not (archive and archive.mirrors)
        },
        pin=traits.get("pin", ()),
        headers=names("kernel-headers"),
        dkms=names("dkms"),
        builds_from=distribution.builds_from,
        compilers={f: more for f in FLAVOURS if (more := tuple(n for e in pick("compiler", f) for n in e.packages))},
    )


def select_with_modules(rules: list[Rule], modules: list[str]) -> tuple[Rule, ...]:
    """Return the rules, but only for branches with kernel modules: a set without them would be complete, but no
    driver."""
    own_rules = [entry for entry in rules if entry["name"] in modules]
    low, high = min(entry["min"] for entry in own_rules), max(entry["max"] for entry in own_rules)
    return tuple({**entry, "min": max(entry["min"], low), "max": min(entry["max"], high)} for entry in rules)


@cache
def build_kernel_module_table() -> dict[str, str]:
    """Return the need of each GPU's PCI ID (`10de:2330`): `open-required`, `proprietary-required` or `either`."""
    return {entry.id: gpu.kernel_modules.flavour for gpu in list_gpus() for entry in gpu.pci_ids}
