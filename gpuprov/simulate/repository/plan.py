"""Driver versions that a simulated host's repository offers: Debian's own, or a set that is rewritten to another
version."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpuprov.catalog.drivers import Version, derive_branch
from gpuprov.core.errors import GpuprovError
from gpuprov.simulate.repository.debian import Package
from gpuprov.simulate.repository.versions import newest


@dataclass(frozen=True)
class Plan:
    """Driver versions in NVIDIA's form (`535.261.03`): those offered as Debian has them, and those rewritten from
    `base`."""

    real: tuple[str, ...]
    rewritten: tuple[str, ...]
    base: str

    @property
    def versions(self) -> tuple[str, ...]:
        """Return all of them."""
        return (*self.real, *self.rewritten)


def upstream(version: str) -> str:
    """Return NVIDIA's version, `535.261.03`, of the package version `535.261.03-1`."""
    return re.sub(r"[-+~].*", "", version)


def plan(driver: str, offered: Iterable[Package], names: Sequence[str]) -> Plan:
    """Choose versions. `driver`: empty for all that Debian has, or branches and exact versions, separated by commas.
    `names`: the whole set.

    A branch that Debian does not have stands for its newest release in the catalogue.
    """
    having: dict[str, set[str]] = {}
    for package in offered:
        if package.name in names:
            having.setdefault(upstream(package.version), set()).add(package.name)
    known = sorted(having, key=Version.parse)
    base = max((v for v in known if having[v] >= set(names)), key=Version.parse, default="")
    if not base:
        raise GpuprovError("Debian has no version of the driver with all of its packages", fix=", ".join(names))
    real: list[str] = []
    rewritten: list[str] = []
    for word in driver.replace(",", " ").split():
        of_branch = [version for version in known if derive_branch(version) == derive_branch(word)]
        if word in known:
            real.append(word)
        elif not Version.parse(word).is_branch:
            rewritten.append(word)
        elif of_branch:
            real += of_branch
        else:
            rewritten.append(newest(word))
    if not real and not rewritten:
        real = known
    return Plan(tuple(dict.fromkeys(real)), tuple(dict.fromkeys(rewritten)), base)
