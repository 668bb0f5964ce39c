"""The types of data/drivers.yaml: branches, and the packages that carry them."""

from functools import cache
from typing import Literal, TypeVar

import msgspec

from gpuprov.catalog.distributions import Family, expand_groups
from gpuprov.catalog.gpus import Flavour
from gpuprov.catalog.reader import BranchFact, Confidence, Fact, File, load

BranchType = Literal["PB", "LTSB", "NFB", "evaluation"]


class Lifecycle(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The support period of branches of a type, as text."""

    type: BranchType
    name: str
    support: str


class Branch(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A driver branch."""

    branch: str
    type: BranchType | None = None
    # Last supported month, "2028-06".
    eol: str | None = None
    # Support is over, if no month is known.
    ended: bool | None = None
    # Details beyond the month.
    eol_text: str = ""
    # The version that nvidia-smi reports.
    cuda: str | None = None
    # Full version.
    newest_seen: str = ""
    unsure: dict[str, Confidence] = {}
    notes: tuple[str, ...] = ()

    def sure(self, field: str) -> Confidence:
        """Return the confidence of a field of the entry."""
        return self.unsure.get(field, self.confidence)


class Older(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """GPUs with a PCI device id lower than `below` (hex): they have no GSP, and `last_branch` is the last that supports
    them."""

    below: str
    last_branch: str
    generation: str


class Modules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The branches in which kernel modules change."""

    open_first_branch: BranchFact
    open_default_since: BranchFact
    open_only_since: BranchFact
    older: tuple[Older, ...]


class Origin(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An archive. `url` has {repo} and {arch}; without a url it is the distribution's own."""

    key: str
    distributions: tuple[str, ...]
    components: tuple[str, ...] = ()
    url: str = ""
    # The value of {arch} by machine (`uname -m`).
    architectures: dict[str, str] = {}
    # The archive whose packages it has, without its module streams.
    mirrors: str = ""
    # The command that adds it as a package source of a host.
    enabled_by: str = ""
    unsure: dict[str, Confidence] = {}
    notes: tuple[str, ...] = ()


class Offer(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A package version seen in an archive."""

    distribution: str
    origin: str
    package: str
    # The package's, with epoch and revision.
    version: str
    suite: str = ""
    note: str = ""
    unsure: dict[str, Confidence] = {}


class PackageSet(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Packages that provide one part of a driver stack on some distributions, for branches min..max (inclusive).
    `packages` may contain {branch}, {version}, {kernel}, {kernel_flavour}."""

    part: str
    distributions: tuple[str, ...]
    origin: str
    flavour: Flavour | None = None
    min_branch: str = ""
    max_branch: str = ""
    packages: tuple[str, ...]
    # Other names for the same.
    alternatives: tuple[str, ...] = ()
    # driver: all have the driver's version, to be pinned and held as a set; own: a version line of its own; kernel:
    # follows the kernel.
    version: Literal["driver", "own", "kernel"]
    module_stream: str = ""
    # A package that they depend on in exactly their version.
    needs: str = ""
    # If it is not "nvidia".
    module_name: str = ""
    unsure: dict[str, Confidence] = {}
    notes: tuple[str, ...] = ()


class DriverNames(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Names of packages (regular expressions) that belong to a driver, or to none, beside those of the package sets."""

    family: Family
    names: tuple[str, ...]
    driver: bool = True
    notes: tuple[str, ...] = ()


class Service(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A systemd unit of a component."""

    component: str
    unit: str
    note: str = ""


class ComponentFile(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A path of a component."""

    component: str
    what: str
    path: str
    note: str = ""


class Setting(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key of fabricmanager.cfg, or an option of a kernel module."""

    component: str
    key: str
    default: str = ""
    # Permitted values (number: 0 to `max`; path: absolute or empty); unit: the package's unit owns the key.
    kind: Literal["", "number", "address", "path", "choice", "unit"] = ""
    choices: tuple[str, ...] = ()
    max: int | None = None
    min_branch: str = ""
    # A value that others set.
    seen: str = ""
    meaning: str = ""
    note: str = ""
    unsure: dict[str, Confidence] = {}


class DriversFile(File, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """data/drivers.yaml"""

    lifecycles: tuple[Lifecycle, ...]
    branches: tuple[Branch, ...]
    modules: Modules
    origins: tuple[Origin, ...]
    offers: tuple[Offer, ...]
    package_sets: tuple[PackageSet, ...]
    driver_names: tuple[DriverNames, ...]
    services: tuple[Service, ...]
    files: tuple[ComponentFile, ...]
    settings: tuple[Setting, ...]


def get_coherent_memory() -> Setting:
    """The module's parameter for the memory of GPUs that share it with their CPU."""
    return next(entry for entry in read_drivers_file().settings if entry.key == "NVreg_CoherentGPUMemoryMode")


@cache
def read_drivers_file() -> DriversFile:
    """The whole file, with the keys of distributions in place of their groups."""
    file = load("drivers", DriversFile)
    origins, package_sets = expand_rows(file.origins, "origins"), expand_rows(file.package_sets, "package_sets")
    return msgspec.structs.replace(file, origins=origins, package_sets=package_sets)


Listed = TypeVar("Listed", Origin, PackageSet)


def expand_rows(rows: tuple[Listed, ...], table: str) -> tuple[Listed, ...]:
    where = f"gpuprov/catalog/data/drivers.yaml: {table}: distributions"
    keys = {names: expand_groups(names, where) for names in dict.fromkeys(row.distributions for row in rows)}
    return tuple(msgspec.structs.replace(row, distributions=keys[row.distributions]) for row in rows)


def find_origin(key: str) -> Origin | None:
    """The archive with this key."""
    return next((entry for entry in read_drivers_file().origins if entry.key == key), None)


def list_same_packages(origin: str) -> tuple[str, ...]:
    """Return the origins whose package sets an archive has: its own, that of the archive it mirrors, and the
    distribution's."""
    known = find_origin(origin)
    return (origin, *((known.mirrors,) if known and known.mirrors else ()), "distribution")
