"""Packages that a host's spec needs, by gpuprov's own preflight; and what no bundle can hold yet, by name."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from gpuprov.bundle.model import FOLDER, Named
from gpuprov.capabilities import BY_NAME
from gpuprov.capabilities.nvidia_driver.fragment import package_names
from gpuprov.catalog.repositories import DEBIAN as ARCHITECTURES
from gpuprov.core.errors import GpuprovError
from gpuprov.facts.collect.gather import gather
from gpuprov.facts.collect.rounds import Pace
from gpuprov.facts.probes.base import Facts, Probe
from gpuprov.facts.probes.driver.driver_packages import BUILDING
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.host.family import Family, family
from gpuprov.play.preflight.judging import judge
from gpuprov.rules import package_lists
from gpuprov.spec.model import HostSpec, RawHost
from gpuprov.verify.evaluate import probes_of

Pair = tuple[RawHost, HostSpec]
INSTALLERS = ("efa", "erdma-vendor")


class Key(msgspec.Struct, frozen=True, order=True):
    """The key of a package source in the spec, which the machine with gpuprov fetches."""

    url: str
    fingerprint: str
    source: str


class HostNeeds(msgspec.Struct, frozen=True, kw_only=True):
    """Needs of one host from its package manager: `packages` as NAME or NAME=VERSION, the driver's `pin`, and its
    `stream` (dnf)."""

    family: Family
    release: str
    distribution: str
    architecture: str
    kernels: tuple[str, ...]
    packages: tuple[str, ...]
    pin: Mapping[str, Any]
    stream: str = ""
    downloads: tuple[Named, ...] = ()
    keys: tuple[Key, ...] = ()

    @property
    def folder(self) -> str:
        """The folder of the bundle that hosts of this kind share."""
        return f"{self.distribution}{self.release}-{self.architecture}"


def kind(facts: Facts) -> tuple[str, str, str]:
    """Return the kind of host that a bundle distinguishes: distribution, release, architecture."""
    release, machine = facts.get(system.OS_RELEASE), facts.get(system.PLATFORM).machine
    return release.id, release.version, ARCHITECTURES.get(machine, machine) if family(release) == "debian" else machine


def refuse_unsupported(pairs: tuple[Pair, ...]) -> None:
    """Raise GpuprovError for parts of the specs that no bundle can hold."""
    for raw, spec in pairs:
        lacking = [name for name in spec.capabilities if BY_NAME[name].from_site]
        driver: Any = spec.capabilities.get("nvidia_driver")
        rdma: Any = spec.capabilities.get("rdma")
        if driver is not None and driver.build_host:
            lacking.append("nvidia_driver.build_host")
        if rdma is not None and (rdma.own_stack in INSTALLERS or rdma.fabric in INSTALLERS):
            lacking.append(f"rdma.fabric {rdma.fabric}, whose installer takes packages by itself,")
        if lacking:
            raise GpuprovError(
                f"{raw.name}: a bundle cannot hold what {', '.join(lacking)} needs",
                "leave it out of the specs of the bundle, and bring it to the hosts by other means",
            )


def list_probes(spec: HostSpec) -> tuple[Probe[Any], ...]:
    """List the probes that `wanted` needs."""
    probe_list = [*probes_of(spec, stops=True), system.OS_RELEASE, system.PLATFORM]
    for name in spec.capabilities:
        if desired := BY_NAME[name].desired:
            probe_list += (probe.of(spec) for probe in desired.probes)
    return tuple(dict.fromkeys(probe_list))


def read_needs(pairs: tuple[Pair, ...], forks: int) -> dict[str, HostNeeds]:
    """Read the present needs of each host. Raises the first error of a host."""
    gathered = gather([(raw, list_probes(spec)) for raw, spec in pairs], pace=Pace(forks))
    answers = {}
    for raw, spec in pairs:
        facts = gathered[raw.name]
        if isinstance(facts, Exception):
            raise facts
        answers[raw.name] = determine_need(raw.name, spec, facts)
    return answers


def determine_need(name: str, spec: HostSpec, facts: Facts) -> HostNeeds:
    """Determine the needs of this host. Raises GpuprovError."""
    release = facts.get(system.OS_RELEASE)
    kin = family(release)
    if kin is None:
        raise GpuprovError(
            f"{name} runs {release.id} {release.version}, and a bundle is made with apt, dnf or zypper",
            "leave it out here with --limit",
        )
    verdict = judge(spec, facts, list(spec.capabilities), preflight=True)
    if verdict.refusals:
        raise GpuprovError(f"{name}: {'; '.join(verdict.refusals)}", "correct it, then make the bundle again")
    made = verdict.desired
    if later := [wait["told"] for desired in made.values() if isinstance(wait := desired.get("later"), dict) and wait]:
        raise GpuprovError(
            f"{name}: its package sources do not have all that the spec needs: {'; '.join(later)}",
            "gpuprov apply --act prepare adds them on a host that may change; then make the bundle again",
        )
    driver = made.get("nvidia_driver", {})
    _refuse_installed(name, made)
    distribution, version, architecture = kind(facts)
    need = HostNeeds(
        family=kin,
        release=version,
        distribution=distribution,
        architecture=architecture,
        kernels=tuple(driver.get("kernels", ())),
        packages=tuple(sorted({*_list_packages(made), *_list_headers(spec, facts, driver)})),
        pin=driver.get("pin", {}),
        stream=driver.get("stream", ""),
        downloads=tuple(sorted(set(downloads(spec)))),
        keys=tuple(sorted(set(_list_keys(spec)))),
    )
    if not re.fullmatch(FOLDER, need.folder):
        raise GpuprovError(
            f"{name} says that it is {need.folder[:80]!r}, which can be no folder of a bundle",
            "correct ID and VERSION_ID in its /etc/os-release: lower-case letters, digits, and . _ -",
        )
    return need


def _list_packages(made: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for desired in made.values():
        handed = (entry for entry in desired.get("tasks", {}).values() if isinstance(entry, dict))
        for part in (desired, desired.get("gdrcopy", {}), *handed):
            yield from part.get("install") or ()


def _list_headers(spec: HostSpec, facts: Facts, driver: Mapping[str, Any]) -> list[str]:
    """List the kernel headers, also if this host has them already: another one may not."""
    if not driver.get("builds"):
        return []
    block: Any = spec.capabilities["nvidia_driver"]
    forms = package_names(block, facts).headers
    return package_lists.header_packages(forms, driver["kernels"], facts.get(BUILDING).offered)


def _walk_blocks(spec: HostSpec) -> Iterator[tuple[str, Any]]:
    """Yield the blocks in the spec's capabilities, however deep, each with its name."""

    def inside(place: str, block: Any) -> Iterator[tuple[str, Any]]:
        yield place, block
        for field in block.__struct_fields__:
            if isinstance(inner := getattr(block, field), msgspec.Struct):
                yield from inside(f"{place}.{field}", inner)

    for name, fragment in spec.capabilities.items():
        yield from inside(name, fragment)


def downloads(spec: HostSpec) -> Iterator[Named]:
    """Yield the files that the spec names by their address."""
    for place, block in _walk_blocks(spec):
        if getattr(block, "sha256", "") and getattr(block, "url", ""):
            yield Named(of=place, url=block.url, sha256=block.sha256.lower())


def _list_keys(spec: HostSpec) -> Iterator[Key]:
    for _, block in _walk_blocks(spec):
        if getattr(block, "key_url", ""):
            yield Key(block.key_url, block.fingerprint, block.url)


def _refuse_installed(name: str, made: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise GpuprovError for installed packages: nothing requests them, so they would be missing from the bundle."""
    driver = made.get("nvidia_driver", {})
    requested = {package.partition("=")[0] for package in _list_packages(made)}
    installed = [package for package in driver.get("packages", {}) if package not in requested]
    for desired in made.values():
        if not desired.get("install") and "release" in desired:
            installed += [package for package in (*desired["hold"], *desired["release"]) if package not in requested]
    if installed:
        raise GpuprovError(
            f"{name} has {', '.join(dict.fromkeys(installed))} already, so that it does not show what a fresh host "
            "needs",
            "resolve on a host of the same release without them: --limit HOST, or gpuprov rehearse's kind of host",
        )
