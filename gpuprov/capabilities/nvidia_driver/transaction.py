"""The installed packages of the driver, and the one transaction that installs them: which packages come, move and go,
which tools build the modules, and what is held after it."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from gpuprov.capabilities.nvidia_driver.decision import Ctx, chosen, kernels, seen
from gpuprov.capabilities.nvidia_driver.fragment import Decision, NvidiaDriver, decide, package_names, served, versions
from gpuprov.catalog.drivers.sets import DriverPackages
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.driver.driver_packages import BUILDING, HELD_KERNELS, INSTALLED, KERNELS_HELD, Row
from gpuprov.facts.probes.software.packages import BOOTING, INDEX, LOCKING, NO_LOCK_PLUGIN, PACKAGES, Package
from gpuprov.facts.probes.software.prebuilt import SUFFIX
from gpuprov.host_code.json_members import Json
from gpuprov.host_code.packages.dnf import LOCK_PLUGIN
from gpuprov.rules import package_lists, resolve

# Packages that require a kernel in exactly their own version, from EL 9 on, and come with DKMS: if the kernel alone is
# held, they block every upgrade. https://gitlab.com/cki-project/kernel-ark/-/merge_requests/1195, and of a similar
# package https://github.com/leifliddy/asahi-fedora-builder/issues/23
MATCHED = "kernel(-(uek64k|uek|64k|rt(-64k)?))?(-debug)?-devel-matched"


class Transaction(msgspec.Struct, frozen=True, kw_only=True):
    """`before`: tools that build the modules. `install` and `remove`: the one transaction. `whole`: every package that
    moves with the set, `present`: those that may be held under an older version. `unmovable`: packages that would be
    left behind at the old version. `lacking`: build tools that are offered nowhere."""

    before: tuple[str, ...] = ()
    install: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()
    present: tuple[str, ...] = ()
    source_packages: tuple[str, ...] = ()
    builds: bool = False
    unmovable: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()


def prebuilt(facts: Facts) -> list[str]:
    """Return the installed packages of modules that another host built."""
    return [
        name
        for name, package in facts.get(PACKAGES).items()
        if name == package.name and re.fullmatch(f".*nvidia.*{SUFFIX}", name)
    ]


def installed(ctx: Ctx) -> dict[str, str]:
    """Return package versions by name. The build host's package counts as the package that it replaces only while a
    build host is wanted."""
    present, is_served = ctx.facts.get(PACKAGES), served(ctx.host, ctx.fragment)
    stands = {name for name, package in present.items() if package.name == name + SUFFIX}
    return {name: package.version for name, package in present.items() if is_served or name not in stands}


def tools(ctx: Ctx, names: DriverPackages, flavour: str) -> list[str]:
    """Return the tools that compile the modules, besides headers."""
    return [*names.dkms, *names.compilers.get(flavour, ())]


def needs(ctx: Ctx, names: DriverPackages, flavour: str) -> list[str]:
    """Return what a module build needs and the host lacks: DKMS, compilers, headers of kernels, and of the kernels to
    come."""
    have, build = versions(ctx.facts), ctx.facts.get(BUILDING)
    bare = [kernel.release for kernel in kernels(ctx) if not kernel.headers]
    headers = package_lists.header_packages(names.headers, bare, build.offered)
    metas = header_metapackages(ctx.fragment, ctx.facts)
    requested = dict.fromkeys([*tools(ctx, names, flavour), *headers, *metas])
    missing = [*have, *build.tools, *lacking(ctx, names, flavour)]
    return [name for name in requested if name not in missing]


def lacking(ctx: Ctx, names: DriverPackages, flavour: str) -> list[str]:
    """Return DKMS and compilers that are neither installed nor offered."""
    build = ctx.facts.get(BUILDING)
    known = {*versions(ctx.facts), *build.tools, *build.offered, *ctx.facts.get(INDEX)}
    return [name for name in tools(ctx, names, flavour) if name not in known]


def locks(ctx: Ctx) -> list[str]:
    """Return the package with which dnf holds packages, if it is missing."""
    return [LOCK_PLUGIN] if ctx.fragment.hold and ctx.facts.get(LOCKING) == NO_LOCK_PLUGIN else []


def images(facts: Facts) -> dict[str, bool]:
    """Return the installed packages that bring a bootable kernel, or need it in their version, or its headers, for
    which DKMS would build; and whether each is held."""
    present = facts.get(PACKAGES)
    headers = package_lists.header_metapackages(present)
    return {
        name: package.held
        for name, package in present.items()
        if name == package.name and (name in headers or re.fullmatch(f"{BOOTING}|{MATCHED}", name))
    }


def transaction(ctx: Ctx, decision: Decision) -> Transaction:
    """Return the transaction for a decision without a problem."""
    names, have = package_names(ctx.fragment, ctx.facts), installed(ctx)
    before, short = needs(ctx, names, decision.flavour), lacking(ctx, names, decision.flavour)
    if ctx.fragment.source == "runfile":
        return Transaction(before=tuple(before), lacking=tuple(short))
    own_packages, elsewhere = decision.packages, served(ctx.host, ctx.fragment)
    module, full = next(iter(own_packages.items()))
    real = {name for name, package in ctx.facts.get(PACKAGES).items() if name == package.name}
    replaced = [name for name in decision.replaced if name in real]
    known = ctx.facts.get(INSTALLED)
    related = [row for row in known.rows if names.of_source(row.source, row.version) and not row.name.endswith(SUFFIX)]
    behind = [row for row in related if row.name not in replaced and row.version not in {full, *own_packages.values()}]
    alien = [row for row in behind if row.architecture not in known.own]
    native = [row.name for row in behind if row.architecture in known.own and row.name not in own_packages]
    targets = _choose_targets(native, seen(ctx.fragment, ctx.facts), full, decision.version)
    moving = [f"{name}={version}" for name, version in targets.items() if have.get(name) != version]
    moving += [f"{row.name}:{row.architecture}={full}" for row in alien]
    changed = [name for name, version in own_packages.items() if have.get(name) != version]
    source_packages = [module, *(name for name in own_packages if name.startswith("nvidia-kernel-source"))]
    pins = [*(f"{name}={version}" for name, version in own_packages.items()), *moving]
    install = pins if moving or replaced or changed else []
    prebuilt_now = prebuilt(ctx.facts)
    if elsewhere:
        install = [pin for pin in install if pin.partition("=")[0] not in source_packages]
        before, prebuilt_now = [], [name for name in prebuilt_now if name != module + SUFFIX]
        replaced = [*replaced, *(name for name in source_packages if name in real)]
    remove = dict.fromkeys((*replaced, *prebuilt_now))
    whole = dict.fromkeys((*own_packages, *(row.name for row in related if row.name not in remove)))
    return Transaction(
        before=(*before, *locks(ctx)),
        install=(*install, *(name for name in names.extra if name not in have)),
        remove=tuple(remove),
        whole=tuple(whole),
        present=tuple(name for name in names.ask if name in have and name not in names.dkms),
        source_packages=tuple(source_packages),
        builds=ctx.fragment.build == "dkms" and not elsewhere and have.get(module) != full,
        unmovable=tuple(name for name in dict.fromkeys(native) if name not in targets),
        lacking=() if elsewhere else tuple(short),
    )


def made_by_nvidia(ctx: Ctx, decision: Decision) -> list[Row]:
    """Return packages of NVIDIA's repository under the names of the distribution's, which the transaction would not
    replace."""
    names, own_packages = package_names(ctx.fragment, ctx.facts), decision.packages
    if chosen(ctx.fragment, ctx.facts) != "distribution" or not own_packages:
        return []
    full = next(iter(own_packages.values()))
    rows = [row for row in ctx.facts.get(INSTALLED).rows if names.of_source(row.source, row.version)]
    return [row for row in rows if "nvidia.com" in row.vendor and row.version != full]


def _choose_targets(native: Iterable[str], index: Mapping[str, list[str]], full: str, version: str) -> dict[str, str]:
    """Return the version that each package moves to: the modules' own if it exists, else the newest of the same driver
    version."""
    form = re.compile(rf"([0-9]+:)?{re.escape(version)}(-|\Z)")
    targets = {name: full if full in index.get(name, []) else "" for name in native}
    near = {
        name: next((candidate for candidate in index.get(name, []) if form.match(candidate)), "") for name in targets
    }
    return {name: version or near[name] for name, version in targets.items() if version or near[name]}


def installed_set(driver: NvidiaDriver, facts: Facts) -> dict[str, Package]:
    """Return the installed packages that must share the driver's version: the set, under any branch's names, and
    whatever else came from its source."""
    names = package_names(driver, facts)
    rules: Iterable[Any] = names.sets[decide(driver, facts).flavour]
    own_names = resolve.other_names(list(rules), versions(facts))
    present = facts.get(PACKAGES)
    return {
        name: package
        for name, package in present.items()
        if name in own_names or names.of_source(package.source, package.version)
    }


def module_package(driver: NvidiaDriver, facts: Facts) -> Package | None:
    """Return the installed package that the kernel modules come from."""

    def find() -> Package | None:
        names = resolve.kernel_package(package_names(driver, facts).sets, versions(facts))
        return next((facts.get(PACKAGES)[name] for name in names.values()), None)

    return facts.once("nvidia_driver.module_package", driver, find)


def installed_version(driver: NvidiaDriver, facts: Facts) -> str:
    """Return the driver version of the installed modules: of their package, or the runfile's; empty if there are
    none."""
    if driver.source == "runfile":
        return driver.version
    package = module_package(driver, facts)
    return resolve.upstream(package.version) if package else ""


def header_metapackages(driver: NvidiaDriver, facts: Facts) -> list[str]:
    """Return the metapackages that bring headers along with each kernel that an installed `linux-image-...` metapackage
    brings, if DKMS is to build for those. None if kernels are held: the newest headers would have DKMS build for a
    kernel that is kept away."""
    comes = driver.build == "dkms" and driver.kernel_upgrades != "hold"
    return package_lists.header_metapackages(facts.get(PACKAGES)) if comes else []


def holds_kernels(ctx: Ctx) -> bool:
    """Return whether new kernels are held: the spec says so, or a new kernel would boot without modules, as nothing
    builds them there."""
    elsewhere = served(ctx.host, ctx.fragment) or ctx.fragment.build == "precompiled"
    return (
        ctx.fragment.hold and (elsewhere or ctx.fragment.kernel_upgrades == "hold") and ctx.fragment.source != "runfile"
    )


def forgets_kernels(ctx: Ctx) -> bool:
    """Return whether kernels that were held for the modules' sake are released."""
    return bool(ctx.facts.get(KERNELS_HELD)) and not holds_kernels(ctx)


def holding(ctx: Ctx, moves: Transaction, module: str) -> dict[str, Json]:
    """Return `hold` and `release` of packages; `record`: the file that lists the kernels held for the modules' sake;
    `forget`: that file, once it is not needed. Packages that the admin held are not among them, and are not
    released."""
    known, ours = images(ctx.facts), list(ctx.facts.get(KERNELS_HELD))
    keeps = holds_kernels(ctx)
    kernels = sorted(known) if keeps else ours
    held_by_admin = {name for name, held in known.items() if held and name not in ours}
    record = "".join(f"{name}\n" for name in sorted(known) if name not in held_by_admin)
    packages = list(moves.whole)
    if served(ctx.host, ctx.fragment):
        packages = [*(name for name in moves.whole if name not in moves.source_packages), module + SUFFIX]
    every = [
        *moves.whole,
        *packages,
        *moves.present,
        *moves.remove,
        *kernels,
        *_list_signature_packages(ctx, moves.remove),
    ]
    return {
        "hold": list(dict.fromkeys([*packages, *(kernels if keeps else [])])) if ctx.fragment.hold else [],
        "release": list(dict.fromkeys(every)),
        "record": {"files": {HELD_KERNELS: record}} if keeps else {},
        "forget": {"absent": [HELD_KERNELS]} if forgets_kernels(ctx) else {},
    }


def _list_signature_packages(ctx: Ctx, remove: Iterable[str]) -> list[str]:
    """Return Ubuntu's packages that hold the signatures of precompiled modules: they are released when those modules
    are removed."""
    leave = any(name.startswith("linux-modules-nvidia-") for name in remove)
    return [name for name in installed(ctx) if leave and name.startswith("linux-signatures-nvidia-")]
