"""What a host's spec needs of packages, by gpuprov's own judge; and what no bundle can hold yet, by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from gpuprov.capabilities import BY_NAME
from gpuprov.errors import GpuprovError
from gpuprov.gather.gather import gather
from gpuprov.gather.pace import Pace
from gpuprov.judge.judging import judge
from gpuprov.probe import system
from gpuprov.probe.base import Facts, Probe
from gpuprov.spec.model import HostSpec, RawHost
from gpuprov.spec.repository import files_of
from gpuprov.verify.evaluate import probes_of

Pair = tuple[RawHost, HostSpec]
PROVIDED = frozenset(("kernel", "nouveau", "nvidia_driver", "persistence", "mig", "gpu_settings", "topology", "health"))
"""Capabilities that a bundle is proven for. The others take packages from sources of their own, or fetch something else, too."""
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What one host asks of apt: `packages` as NAME or NAME=VERSION, and the driver's `pin`."""

    release: str
    distribution: str
    architecture: str
    kernels: tuple[str, ...]
    packages: tuple[str, ...]
    pin: Mapping[str, Any]


def refuse_unsupported(pairs: tuple[Pair, ...]) -> None:
    """Raise GpuprovError for what the specs ask for and no bundle can hold."""
    for raw, spec in pairs:
        if lacking := [name for name in spec.capabilities if name not in PROVIDED]:
            raise GpuprovError(
                f"{raw.name}: a bundle cannot hold what {', '.join(lacking)} needs; supported: {', '.join(sorted(PROVIDED))}",
                "leave it out of the specs of the bundle, and bring it to the hosts by other means",
            )
        driver: Any = spec.capabilities.get("nvidia_driver")
        if driver is not None and driver.source not in ("auto", "distribution"):
            raise GpuprovError(
                f"{raw.name}: nvidia_driver.source is {driver.source}; a bundle can hold what Debian itself has",
                "use source: distribution; a site's copy of NVIDIA's repository is source: mirror, without a bundle",
            )
        if named := sorted(path for fragment in spec.capabilities.values() for path in files_of(fragment)):
            raise GpuprovError(
                f"{raw.name}: its spec names files that no bundle carries: {', '.join(named)}",
                "leave them out of the specs of the bundle",
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
    release, platform = facts.get(system.OS_RELEASE), facts.get(system.PLATFORM)
    if release.id != "debian":
        raise GpuprovError(
            f"{name} runs {release.id} {release.version}; a bundle can be made for Debian alone, so far",
            "give that host a mirror of its distribution; leave it out here with --limit",
        )
    verdict = judge(spec, facts, list(spec.capabilities), preflight=True)
    if verdict.refusals:
        raise GpuprovError(f"{name}: {'; '.join(verdict.refusals)}", "correct it, then make the bundle again")
    made = verdict.desired
    later = [one["later"]["told"] for one in made.values() if one.get("later")]
    if later or made.get("nvidia_driver", {}).get("sources"):
        told = "; ".join(later) or "the driver's package source is not there"
        raise GpuprovError(
            f"{name}: its package sources do not have all that the spec needs: {told}",
            "gpuprov apply --act prepare adds them on a host that may change; then make the bundle again",
        )
    driver = made.get("nvidia_driver", {})
    _refuse_installed(name, made)
    return Wanted(
        release=release.version,
        distribution=release.id,
        architecture=ARCHITECTURES.get(platform.machine, platform.machine),
        kernels=tuple(driver.get("kernels", ())),
        packages=tuple(sorted({*_packages(made), *_headers(driver)})),
        pin=driver.get("pin", {}),
    )


def _packages(made: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for name, desired in made.items():
        for field in ("try_install", "install", "download"):
            yield from desired.get(field) or ()
        if name == "persistence":  # names, where the driver's are a table
            yield from desired["packages"]


def _headers(driver: Mapping[str, Any]) -> list[str]:
    """Also where this host has them already: another one may not."""
    return [f"linux-headers-{kernel}" for kernel in driver.get("kernels", ()) if driver.get("builds")]


def _refuse_installed(name: str, made: Mapping[str, Mapping[str, Any]]) -> None:
    """What is installed already is not asked for, so that it would be missing in the bundle."""
    driver = made.get("nvidia_driver", {})
    asked = {one.partition("=")[0] for one in driver.get("try_install", ())}
    there = [one for one in driver.get("packages", {}) if one not in asked]
    if there:
        raise GpuprovError(
            f"{name} has {', '.join(there)} already, so that it does not show what a fresh host needs",
            "resolve on a host of the same release without a driver: --limit HOST, or gpuprov rehearse's kind of host",
        )
