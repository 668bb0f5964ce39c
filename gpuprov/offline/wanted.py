"""What a host's spec needs of packages, by gpuprov's own judge; and what no bundle can hold yet, by name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from gpuprov.capabilities import BY_NAME
from gpuprov.capabilities.nvidia_driver.fragment import package_names
from gpuprov.catalog.repositories import DEBIAN as ARCHITECTURES
from gpuprov.errors import GpuprovError
from gpuprov.gather.gather import gather
from gpuprov.gather.pace import Pace
from gpuprov.judge.judging import judge
from gpuprov.offline.model import FOLDER, Named
from gpuprov.probe.base import Facts, Probe
from gpuprov.probe.driver.driver_packages import BUILDING
from gpuprov.probe.host import system
from gpuprov.probe.host.family import Family, family
from gpuprov.shared import package_lists
from gpuprov.spec.model import HostSpec, RawHost
from gpuprov.verify.evaluate import probes_of

Pair = tuple[RawHost, HostSpec]
FIELDS = ("try_install", "install", "download")
"""Of what is desired of a capability: packages, as its role gives them to the package manager."""
INSTALLERS = ("efa", "erdma-vendor")


class Key(msgspec.Struct, frozen=True, order=True):
    """The key of a package source of the spec's, that the machine with gpuprov fetches."""

    url: str
    fingerprint: str
    source: str


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What one host asks of its package manager: `packages` as NAME or NAME=VERSION, the driver's `pin`, and its `stream` (dnf)."""

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
    """What a bundle tells hosts apart by: distribution, release, architecture."""
    release, machine = facts.get(system.OS_RELEASE), facts.get(system.PLATFORM).machine
    return release.id, release.version, ARCHITECTURES.get(machine, machine) if family(release) == "debian" else machine


def refuse_unsupported(pairs: tuple[Pair, ...]) -> None:
    """Raise GpuprovError for what the specs ask for and no bundle can hold."""
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


def probes(spec: HostSpec) -> tuple[Probe[Any], ...]:
    """What has to be read of a host for `wanted`."""
    found = [*probes_of(spec, stops=True), system.OS_RELEASE, system.PLATFORM]
    for name in spec.capabilities:
        if desired := BY_NAME[name].desired:
            found += (probe.of(spec) for probe in desired.probes)
    return tuple(dict.fromkeys(found))


def read(pairs: tuple[Pair, ...], forks: int) -> dict[str, Wanted]:
    """What each host asks for, as it is judged now. Raises the first error of a host."""
    found = gather([(raw, probes(spec)) for raw, spec in pairs], pace=Pace(forks))
    answers = {}
    for raw, spec in pairs:
        facts = found[raw.name]
        if isinstance(facts, Exception):
            raise facts
        answers[raw.name] = wanted(raw.name, spec, facts)
    return answers


def wanted(name: str, spec: HostSpec, facts: Facts) -> Wanted:
    """What this host asks for. Raises GpuprovError."""
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
    if later := [one["later"]["told"] for one in made.values() if isinstance(one.get("later"), dict) and one["later"]]:
        raise GpuprovError(
            f"{name}: its package sources do not have all that the spec needs: {'; '.join(later)}",
            "gpuprov apply --act prepare adds them on a host that may change; then make the bundle again",
        )
    driver = made.get("nvidia_driver", {})
    _refuse_installed(name, made)
    distribution, version, architecture = kind(facts)
    found = Wanted(
        family=kin,
        release=version,
        distribution=distribution,
        architecture=architecture,
        kernels=tuple(driver.get("kernels", ())),
        packages=tuple(sorted({*_packages(made), *_headers(spec, facts, driver)})),
        pin=driver.get("pin", {}),
        stream=driver.get("stream", ""),
        downloads=tuple(sorted(set(downloads(spec)))),
        keys=tuple(sorted(set(_keys(spec)))),
    )
    if not re.fullmatch(FOLDER, found.folder):
        raise GpuprovError(
            f"{name} says that it is {found.folder[:80]!r}, which can be no folder of a bundle",
            "correct ID and VERSION_ID in its /etc/os-release: lower-case letters, digits, and . _ -",
        )
    return found


def _packages(made: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for desired in made.values():
        for field in FIELDS:
            yield from desired.get(field) or ()
        if isinstance(names := desired.get("packages"), list):  # where the driver's are a table
            yield from names
        yield from desired.get("gdrcopy", {}).get("install", ())


def _headers(spec: HostSpec, facts: Facts, driver: Mapping[str, Any]) -> list[str]:
    """Also where this host has them already: another one may not."""
    if not driver.get("builds"):
        return []
    block: Any = spec.capabilities["nvidia_driver"]
    forms = package_names(block, facts).headers
    return package_lists.header_packages(forms, driver["kernels"], facts.get(BUILDING).offered)


def _blocks(spec: HostSpec) -> Iterator[tuple[str, Any]]:
    """The blocks in the spec's capabilities, however deep, each with its name."""

    def inside(place: str, one: Any) -> Iterator[tuple[str, Any]]:
        yield place, one
        for field in one.__struct_fields__:
            if isinstance(inner := getattr(one, field), msgspec.Struct):
                yield from inside(f"{place}.{field}", inner)

    for name, fragment in spec.capabilities.items():
        yield from inside(name, fragment)


def downloads(spec: HostSpec) -> Iterator[Named]:
    """The files that the spec names by their address."""
    for place, one in _blocks(spec):
        if getattr(one, "sha256", "") and getattr(one, "url", ""):
            yield Named(of=place, url=one.url, sha256=one.sha256.lower())


def _keys(spec: HostSpec) -> Iterator[Key]:
    for _, one in _blocks(spec):
        if getattr(one, "key_url", ""):
            yield Key(one.key_url, one.fingerprint, one.url)


def _refuse_installed(name: str, made: Mapping[str, Mapping[str, Any]]) -> None:
    """What is installed already is not asked for, so that it would be missing in the bundle."""
    driver = made.get("nvidia_driver", {})
    asked = {one.partition("=")[0] for one in _packages(made)}
    there = [one for one in driver.get("packages", {}) if one not in asked]
    for desired in made.values():
        if not desired.get("install") and "release" in desired:
            there += [one for one in (*desired["hold"], *desired["release"]) if one not in asked]
    if there:
        raise GpuprovError(
            f"{name} has {', '.join(dict.fromkeys(there))} already, so that it does not show what a fresh host needs",
            "resolve on a host of the same release without them: --limit HOST, or gpuprov rehearse's kind of host",
        )
