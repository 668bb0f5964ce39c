"""The `nvidia_driver` block, and what follows from it on a given host."""

from typing import Annotated, Literal

import msgspec

from gpuprov.capabilities.booting import started
from gpuprov.catalog import cuda, drivers, fabric, find_distribution
from gpuprov.catalog.drivers.sets import DriverPackages, build_kernel_module_table, find_packages, pick_source
from gpuprov.facts.probes.base import Facts, ProbeFailed
from gpuprov.facts.probes.driver.driver_packages import Precompiled
from gpuprov.facts.probes.host import pci, system
from gpuprov.facts.probes.kernel import modules
from gpuprov.facts.probes.kernel.modules import KernelModules
from gpuprov.facts.probes.kernel.next_boot import NEXT_BOOT
from gpuprov.facts.probes.software.packages import PACKAGES
from gpuprov.rules import package_lists, resolve
from gpuprov.spec.described import describe
from gpuprov.spec.kernel import ParameterName, Scalar
from gpuprov.spec.model import Fragment, HostSpec, Sha256
from gpuprov.spec.repository import Repository
from gpuprov.spec.signing import Signing
from gpuprov.spec.url import build_pattern

VERSION = r"^(any|[0-9]{3}|[0-9]{3}\.[0-9]{1,3}(\.[0-9]{1,2})?)$"
CUDA = r"^([0-9]{1,2}(\.[0-9]{1,2}){0,2})?$"
NO_FLAVOUR = "there are no precompiled modules of the {} flavour, which the host needs"
UNKNOWN = "gpuprov knows no packages of this distribution; health, topology and export read such a host"
BUILD_IT = "nvidia_driver: {build: dkms}; or kernel_modules: proprietary, where the GPU runs with them"


class Runfile(Fragment, frozen=True):
    """NVIDIA's .run file: its location and its checksum."""

    url: Annotated[
        str,
        describe(
            "https://HOST/PATH or http://HOST/PATH, without user name, password and "
            "query (a signed link runs out: fetch it, and name the file); the host fetches it",
            pattern=build_pattern(),
        ),
    ] = ""
    file: Annotated[str, describe("or a file beside the inventory, which is copied to the host")] = ""
    sha256: Sha256 = ""


class NvidiaDriver(Fragment, frozen=True):
    """One driver version, its complete package set from one source, built for every installed kernel and held.

    Version any keeps what is installed, else takes the newest production or long-term support branch that the host's
    repositories have and its GPUs run with.

    Packages are downloaded and kernel modules are built before the old driver is touched.
    """

    IMPLIES = {"runfile": ("source", "runfile")}

    version: Annotated[
        str,
        describe(
            'any, a branch ("535") or an exact version ("535.261.03"). With any, what is installed stays; '
            "else production branches come first",
            pattern=VERSION,
        ),
    ] = "any"
    cuda: Annotated[str, describe('a CUDA version that the driver must run, such as "12.8"', pattern=CUDA)] = ""
    kernel_modules: Annotated[
        Literal["auto", "open", "proprietary"],
        describe("the flavour of the kernel modules; auto decides by the GPU's PCI id and the branch"),
    ] = "auto"
    source: Annotated[
        Literal["auto", "distribution", "nvidia", "mirror", "runfile"],
        describe(
            "The distribution's own archive, NVIDIA's repository, the site's mirror of the latter, or NVIDIA's .run "
            "file. auto is the first where the distribution has a driver (Debian, Ubuntu, Amazon Linux), else the "
            "second"
        ),
    ] = "auto"
    build: Annotated[
        Literal["dkms", "precompiled"],
        describe(
            "how a host gets its kernel modules: dkms builds them there, for every kernel; precompiled installs those "
            "that Ubuntu (or, for EL 8 and 9, NVIDIA's repository) has for each of its kernels, without a compiler"
        ),
    ] = "dkms"
    repository: Annotated[
        Repository,
        describe(
            "the site's mirror of NVIDIA's repository, and the key that it is trusted by; without a url there is none"
        ),
    ] = Repository()
    runfile: Annotated[Runfile, describe("NVIDIA's .run file for source runfile, by url or file, and its checksum")] = (
        Runfile()
    )
    module_parameters: Annotated[
        dict[ParameterName, Scalar],
        describe(
            "parameters of the nvidia module, e.g. NVreg_RestrictProfilingToAdminUsers; the module is loaded "
            "again where it can be"
        ),
    ] = {}
    hold: Annotated[bool, describe("whether every package of the set is held against upgrades")] = True
    kernel_upgrades: Annotated[
        Literal["auto", "hold", "follow", "alert"],
        describe(
            "what becomes of new kernels of the distribution: hold keeps them away; follow lets them come, and DKMS "
            "builds their modules; alert lets them come, and fails until the host runs them. auto is follow with "
            "DKMS, else hold"
        ),
    ] = "auto"
    signing: Signing = Signing()
    build_host: Annotated[
        str,
        describe(
            "a host of the inventory that builds the modules for this one (Debian and Ubuntu), or this host itself, "
            "which then packs them for others; empty: it builds its own",
            pattern=r"^[\w.:%@+-]*$",
        ),
    ] = ""


class Decision(msgspec.Struct, frozen=True):
    """The one version and flavour for a host (`gpuprov.rules.resolve.decide`), with the package versions of the set."""

    flavour: str
    reason: str
    version: str
    branch: str
    packages: dict[str, str]
    kept: bool
    problem: str
    fix: str
    replaced: tuple[str, ...] = ()


def served(host: HostSpec, driver: NvidiaDriver) -> bool:
    """Return whether another host builds this host's modules."""
    return driver.build_host not in ("", host.name)


BASE_PROBES = (system.OS_RELEASE, pci.NVIDIA_FUNCTIONS, PACKAGES, NEXT_BOOT)


def offered(driver: NvidiaDriver, facts: Facts) -> DriverPackages | None:
    """Return the driver's packages on this host's distribution; None if its driver is not managed, or not of the wanted
    source."""
    release = facts.get(system.OS_RELEASE)
    source = "auto" if driver.source == "runfile" else driver.source
    matched = find_packages(release.id, release.version, source, driver.build)
    return matched if driver.source == "runfile" or (matched and matched.ask) else None


def package_names(driver: NvidiaDriver, facts: Facts) -> DriverPackages:
    """Return the same, where there must be some."""
    names = offered(driver, facts)
    if names is None:
        release = facts.get(system.OS_RELEASE)
        known = find_distribution(release.id, release.version)
        if known and known.no_driver and (driver.source == "distribution" or pick_source(known) == "runfile"):
            raise ProbeFailed(known.no_driver)
        if driver.build == "precompiled":
            raise ProbeFailed(f"{release.name or release.id} has no precompiled modules of source {driver.source}")
        raise ProbeFailed(f"no driver package names are known for {release.name or release.id}", UNKNOWN)
    return names


def versions(facts: Facts) -> dict[str, str]:
    """Return the installed packages that concern the driver, with their versions."""
    return {name: package.version for name, package in facts.get(PACKAGES).items()}


def followers(host: HostSpec, facts: Facts) -> tuple[resolve.Rules, ...]:
    """Return rules for the packages that the spec wants in the driver's version under their own names: Fabric Manager
    and the library by which DCGM reads NVSwitches, or IMEX."""
    release = facts.get(system.OS_RELEASE)

    def on_bus() -> list[str]:
        return [gpu.identifier for gpu in pci.gpus(facts.get(pci.NVIDIA_FUNCTIONS))]

    return tuple(rules for rules, _ in fabric.list_beside(host.capabilities, on_bus, release.id, release.version))


def decide(
    driver: NvidiaDriver,
    facts: Facts,
    index: dict[str, list[str]] | None = None,
    beside: tuple[resolve.Rules, ...] = (),
    built: Precompiled | None = None,
) -> Decision:
    """Return the driver that this host should have. Without an index only a complete installed set qualifies. `built`:
    precompiled modules, of which every kernel that can boot must have its own."""
    if index is None and not beside and built is None:  # many checks ask for it
        return facts.once("nvidia_driver.decide", driver, lambda: _decide(driver, facts, None, (), None))
    return _decide(driver, facts, index, beside, built)


def _decide(
    driver: NvidiaDriver,
    facts: Facts,
    index: dict[str, list[str]] | None,
    beside: tuple[resolve.Rules, ...],
    built: Precompiled | None,
) -> Decision:
    on_bus = [gpu.identifier for gpu in pci.gpus(facts.get(pci.NVIDIA_FUNCTIONS))]
    if driver.source == "runfile":
        return _decide_for_runfile(driver, on_bus)
    names, installed = package_names(driver, facts), versions(facts)
    sets: resolve.Sets = names.sets
    if built is not None and names.precompiled:
        kernels = [kernel.release for kernel in build_targets(facts)]
        sets = package_lists.precompiled_sets(sets, names.precompiled, kernels)
        index, installed = {**(index or {}), **built.offered}, {**installed, **built.installed}
    answer = resolve.decide(
        driver.version,
        driver.kernel_modules,
        on_bus,
        build_kernel_module_table(),
        sets,
        index or {},
        installed,
        beside=beside,
        cuda=cuda.find_floor(driver.cuda) if driver.cuda else "",
        others=names.others,
        first=drivers.list_settled(),
    )
    answer["packages"] = package_lists.real_versions(answer["packages"], built.exact if built else {})
    if names.precompiled and not answer["problem"] and answer["flavour"] not in names.precompiled:
        answer |= {"problem": NO_FLAVOUR.format(answer["flavour"]), "fix": BUILD_IT}
    elif names.precompiled and answer["problem"]:
        near = "remove the kernel that has none" if answer["fix"] == resolve.NO_DRIVER else answer["fix"]
        answer["fix"] = f"{near}; or nvidia_driver: {{build: dkms}}, which builds for any kernel that has headers"
    return msgspec.convert(answer, Decision)


def _decide_for_runfile(driver: NvidiaDriver, on_bus: list[str]) -> Decision:
    branch = drivers.derive_branch(driver.version)
    choice = resolve.flavour(driver.kernel_modules, on_bus, build_kernel_module_table(), branch)
    answer = {
        **choice,
        "version": driver.version,
        "branch": branch,
        "packages": {},
        "kept": False,
        "fix": resolve.FLAVOURS,
    }
    return msgspec.convert(answer, Decision)


def build_targets(facts: Facts) -> tuple[KernelModules, ...]:
    """Return the kernels that need modules: every one that can boot, or, in a container, every one with headers."""
    kernels = facts.get(modules.KERNELS)
    return tuple(kernel for kernel in kernels if kernel.bootable) or kernels


def spares(driver: NvidiaDriver, facts: Facts) -> tuple[KernelModules, ...]:
    """Return kernels that can boot and that nothing is built for: without headers, neither running, nor started next,
    nor the newest. Modules that are built elsewhere need no headers, so no kernel is spare then."""
    if driver.build != "dkms" or driver.build_host:
        return ()
    kernels = build_targets(facts)
    kept = {*started(facts), max((kernel.release for kernel in kernels), key=package_lists.rpm_order, default="")}
    able = [kernel for kernel in kernels if kernel.headers or kernel.nvidia or kernel.release in kept]
    return tuple(kernel for kernel in kernels if kernel not in able)


def built_here(driver: NvidiaDriver, facts: Facts) -> tuple[KernelModules, ...]:
    """Return the kernels that need this driver's modules."""
    left = spares(driver, facts)
    return tuple(kernel for kernel in build_targets(facts) if kernel not in left)


def needed(driver: NvidiaDriver, facts: Facts, flavour: str) -> list[str]:
    """Return the names of the set on this host: for the branch whose kernel modules are installed, else for the wanted
    one."""
    sets = package_names(driver, facts).sets
    rules, installed = sets[flavour], versions(facts)
    kernel = resolve.kernel_package({flavour: rules}, installed).get(flavour, "")
    version = installed.get(kernel, "" if driver.version == "any" else driver.version)
    if not version:
        version = max((str(rule["max"]) for rule in rules if rule["max"] < resolve.NO_LIMIT), default="0")
    names = resolve.fitting(rules, version)
    exact = "." in version
    return [name for name, rule in names.items() if exact or "{version}" not in rule["name"]]
