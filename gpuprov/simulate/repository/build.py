"""The package repositories of a simulated host: made once for each distribution and driver, then cached."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from gpuprov.catalog.drivers.data import read_drivers_file
from gpuprov.catalog.drivers.sets import DriverPackages, find_packages
from gpuprov.core.errors import GpuprovError
from gpuprov.simulate import debs, image, sources, tools
from gpuprov.simulate.description import Description
from gpuprov.simulate.parts import fabric
from gpuprov.simulate.repository import index, others, signing
from gpuprov.simulate.repository.debian import Archive, Package, closure
from gpuprov.simulate.repository.plan import Plan, plan, upstream
from gpuprov.simulate.repository.standins import CHANGED, KERNEL, Content, keep, standin
from gpuprov.simulate.repository.versions import versions
from gpuprov.simulate.standins import driver as standins_driver
from gpuprov.simulate.standins import ofed, runfile, toolkit

# The folder of NVIDIA's .run files, below the served one.
RUNFILES = "runfile"
# The folder of the doca-host package.
DOCA = "doca"
# Packages that gpuprov installs beside the driver.
EXTRA = ("nvidia-persistenced",)
CODE = (
    "repository/*.py",
    "standins/*.py",
    "standins/files/*",
    "debs.py",
    "rpms.py",
    "distributions.py",
    "parts/fabric.py",
    "parts/packages_files/*.c",
    "parts/fabric_files/*",
    "parts/ofed_files/*",
)


def repository(description: Description, content: Content | None = None, *, rebuild: bool = False) -> Path:
    """Return the folder that the host serves: its repositories, the public keys and a list (`CONTENT.tsv`) of the
    origin of each package. `content`: other stand-ins in Debian's packages than the simulation's own."""
    content = content or _own_content()
    key = _key(description, content)
    made = image.cache_dir() / f"repository-{description.distribution}-{key}"
    with image.alone(made.with_suffix(".lock")):
        if rebuild:
            shutil.rmtree(made, ignore_errors=True)
        if not made.is_dir():
            _build(made, description, content)
    return made


def _build(made: Path, description: Description, content: Content) -> None:
    known = description.known
    tools.say(f"building the package repositories for {known.key} (10 s, and at first a download of 200 MB)")
    with tempfile.TemporaryDirectory(prefix=".repository-", dir=image.cache_dir()) as temporary:
        folder = Path(temporary) / "repository"
        folder.mkdir()
        rows: list[tuple[str, str]] = []
        with signing.signer() as signer:
            if not known.stands_in:
                rows += _debian(folder / "debian", Path(temporary) / "apt", description, content)
                index.apt(folder / "debian", index.OWN, signer)
            else:
                rows += others.distribution(folder, description, signer)
            signer.export(folder)
        if "nvidia" in description.served:
            with signing.signer(signing.VENDOR) as signer:
                rows += others.nvidia(folder, description, signer)
                signer.export(folder)
        for version in versions(description.driver):
            rows.append((runfile.write(folder / RUNFILES, version).name, "stand-in"))
        if description.ofed:
            rows.append((ofed.write(folder / DOCA).name, "stand-in"))
        table = "".join(f"{name}\t{kind}\n" for name, kind in sorted(rows))
        (folder / "CONTENT.tsv").write_text(table, encoding="utf-8")
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        os.replace(folder, made)


def _debian(folder: Path, scratch: Path, description: Description, content: Content) -> list[tuple[str, str]]:
    """Build Debian's packages, with stand-ins for those that touch a GPU or exist only in NVIDIA's repository."""
    pool = folder / "pool"
    pool.mkdir(parents=True)
    names = _names(description.distribution)
    archive = Archive(scratch, description.known.suite, sources.read())
    offered = closure(archive.packages(), [*_set(names), *names.extra, *EXTRA])
    driver = [package for package in offered if names.of_source(package.source)]
    chosen = plan(description.driver, driver, _set(names))
    rows = _packages(archive, pool, offered, names, chosen, content)
    if description.container_toolkit:
        rows += [(file.name, "stand-in") for file in debs.build(pool, toolkit.packages("deb"))]
    for version in chosen.versions:
        rows += [(f.name, "stand-in") for f in fabric.packages(pool, description.distribution, version)]
    return [*rows, (fabric.subnet_manager(pool).name, "stand-in")]


def _packages(
    archive: Archive, pool: Path, offered: Iterable[Package], names: DriverPackages, chosen: Plan, content: Content
) -> list[tuple[str, str]]:
    kept = image.cache_dir() / "packages"
    kept.mkdir(exist_ok=True)
    packages = [
        package
        for package in offered
        if not names.of_source(package.source)
        or upstream(package.version) in chosen.real
        or (chosen.rewritten and upstream(package.version) == chosen.base)
    ]
    rows: list[tuple[str, str]] = []
    for package, deb in zip(packages, archive.download(packages, kept), strict=True):
        of_driver, version = names.of_source(package.source), upstream(package.version)
        if of_driver and version == chosen.base:
            rows += [(standin(deb, package, pool, content, new).name, "stand-in") for new in chosen.rewritten]
        if of_driver and version not in chosen.real:
            continue
        if package.name in CHANGED:
            rows.append((standin(deb, package, pool, content).name, "stand-in"))
        else:
            rows.append((keep(deb, pool).name, "Debian"))
    return rows


def _names(distribution: str) -> DriverPackages:
    listed = find_packages("debian", distribution.removeprefix("debian"))
    if listed is None:
        raise GpuprovError(f"the catalogue has no driver packages for {distribution}")
    return listed


def _set(names: DriverPackages) -> list[str]:
    return list(dict.fromkeys(rule["name"] for rule in (*names.proprietary, *names.open)))


def _own_content() -> Content:
    from gpuprov.simulate.parts import nvml, silicon

    return Content(silicon.dkms_source, nvml.package_files)


def _key(description: Description, content: Content) -> str:
    """Return a hash of everything that determines the content, except Debian's current offer: as with images, `rebuild`
    fetches that."""
    digest = hashlib.sha256()
    root = Path(__file__).parents[1]
    inputs = (description.distribution, description.driver, description.served, sources.read(), description.ofed)
    digest.update(repr(inputs).encode())
    for file in sorted(file for pattern in CODE for file in root.glob(pattern)):
        digest.update(file.name.encode() + file.read_bytes())
    if description.known.stands_in or "nvidia" in description.served:
        digest.update(standins_driver.key())
        digest.update(repr(read_drivers_file().package_sets).encode())
    if not description.known.stands_in:
        names = _names(description.distribution)
        digest.update(repr((_set(names), names.extra)).encode())
    for version in ("1", "999"):  # on either side of all that depends on the branch
        for flavour in sorted(set(KERNEL.values())):
            digest.update(repr(sorted(content.kernel_source(version, flavour).items())).encode())
    if description.container_toolkit:
        digest.update(toolkit.key().encode())
    for path, entry in sorted(content.nvml("1").items()):
        body = entry.content.read_bytes() if isinstance(entry.content, Path) else entry.content
        digest.update(path.encode() + body)
    return digest.hexdigest()[:16]
