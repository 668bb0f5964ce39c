"""Repositories made entirely of stand-ins: those of Ubuntu and of the dnf and zypper families, and NVIDIA's own."""

from __future__ import annotations

from pathlib import Path

from gpuprov.simulate import debs, rpms
from gpuprov.simulate.description import Description
from gpuprov.simulate.distributions import Distribution
from gpuprov.simulate.repository import index
from gpuprov.simulate.repository.index import Release
from gpuprov.simulate.repository.signing import Signer
from gpuprov.simulate.repository.versions import versions
from gpuprov.simulate.standins import el, nvidia_apt, nvidia_dnf, nvidia_zypper, precompiled, suse, toolkit, ubuntu
from gpuprov.simulate.standins import extras as standins
from gpuprov.simulate.standins.model import Standin

Rows = list[tuple[str, str]]
ARCHIVE = "ubuntu"
EL = "el"
SUSE = "suse"
# The folder of a distribution's own archive of NVIDIA's packages, if separate from its other packages.
DRIVER = "driver"
# The folder of packages installed initially on a host of the dnf or zypper family.
INSTALLED = "installed"


def nvidia_place(distribution: Distribution) -> str:
    """Return the path of NVIDIA's repository below the served folder: the same as on NVIDIA's server."""
    return f"nvidia/{distribution.catalogue}/x86_64"


def distribution(folder: Path, description: Description, signer: Signer) -> Rows:
    """Write the distribution's own packages."""
    known = description.known
    if known.family == "redhat":
        own = known.driver_source and "distribution" in description.served
        driver = _nvidia_rpms(folder / DRIVER, description, signer, modular=False) if own else []
        built = _rpms(folder / EL, known, signer, el.installed(known), el.offered(known))
        return [*built, *driver]
    if known.family == "suse":
        return _rpms(folder / SUSE, known, signer, suse.installed(known), suse.offered(known))
    pool = folder / ARCHIVE / "pool"
    made = ubuntu.headers(known)
    if "distribution" in description.served:
        made += [package for version in versions(description.driver) for package in ubuntu.packages(known, version)]
        made += precompiled.ubuntu(known, versions(description.driver))
    made += standins.extras(known, "distribution")
    files = debs.build(pool, made)
    release = Release("Ubuntu", "Ubuntu", known.codename, "restricted")
    index.apt(folder / ARCHIVE, release, signer)
    return [(file.name, "stand-in") for file in files]


def nvidia(folder: Path, description: Description, signer: Signer) -> Rows:
    """Write NVIDIA's repository for the distribution."""
    known, place = description.known, folder / nvidia_place(description.known)
    offered = versions(description.driver)
    if known.family == "redhat":
        return _nvidia_rpms(place, description, signer, modular=known.modular)
    if known.family == "suse":
        made = [package for version in offered for package in nvidia_zypper.packages(known, version)]
        files = rpms.build(place, [*made, *nvidia_zypper.beside(), *standins.extras(known, "nvidia")])
        index.rpm(place, signer)
        return [(file.name, "stand-in") for file in files]
    made = [package for version in offered for package in nvidia_apt.packages(known, version)]
    made += [*nvidia_apt.pinning(offered), *standins.extras(known, "nvidia")]
    made += toolkit.packages("deb") if description.container_toolkit else []
    rows = [(file.name, "stand-in") for file in debs.build(place, made)]
    index.apt(place, index.NVIDIA, signer)
    return rows


def _nvidia_rpms(place: Path, description: Description, signer: Signer, *, modular: bool) -> Rows:
    known, offered = description.known, versions(description.driver)
    made = [package for version in offered for package in nvidia_dnf.packages(known, version)]
    made += nvidia_dnf.precompiled(known, offered)
    made += toolkit.packages("rpm") if description.container_toolkit else []
    files = rpms.build(place, [*made, *standins.extras(known, "nvidia")])
    index.rpm(place, signer, nvidia_dnf.modulemd(known, offered) if modular else "")
    return [(file.name, "stand-in") for file in files]


def _rpms(folder: Path, known: Distribution, signer: Signer, installed: list[Standin], offered: list[Standin]) -> Rows:
    built = rpms.build(folder / INSTALLED, installed)
    more = rpms.build(folder, [*offered, *standins.extras(known, "distribution")])
    index.rpm(folder, signer)
    return [(file.name, "stand-in") for file in (*built, *more)]
