"""The package repository of a simulated GPU host: made once for each distribution and driver, and kept in the cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from gpuprov.catalog.driver_sets import DriverPackages, driver_packages
from gpuprov.errors import GpuprovError
from gpuprov.simulate import image, repository_index, repository_signing, rpms, sources, standins_toolkit, tools
from gpuprov.simulate.description import Description
from gpuprov.simulate.parts import fabric
from gpuprov.simulate.repository_debian import Archive, Package, closure
from gpuprov.simulate.repository_plan import Plan, plan, upstream
from gpuprov.simulate.repository_standins import CHANGED, KERNEL, Content, keep, standin

SUITE = "gpuprov-sim"
EXTRA = ("nvidia-persistenced",)
"""What gpuprov installs beside the driver's set."""


def repository(description: Description, content: Content | None = None, *, rebuild: bool = False) -> Path:
    """The folder that the host serves: an apt repository (`debian`), an rpm repository (`rpm`), the public key and a list
    (`CONTENT.tsv`) that says of each package what it is. `content`: other stand-ins than the simulation's own."""
    content = content or _own_content()
    names = _names(description.distribution)
    key = _key(description, names, content)
    made = image.cache_dir() / f"repository-{description.distribution}-{key}"
    with image.alone(made.with_suffix(".lock")):
        if rebuild:
            shutil.rmtree(made, ignore_errors=True)
        if not made.is_dir():
            _build(made, description, names, content)
    return made


def _build(made: Path, description: Description, names: DriverPackages, content: Content) -> None:
    suite = image.DISTRIBUTIONS[description.distribution]
    tools.say(f"building the package repository for {suite} (10 s, and at first a download of 200 MB)")
    with tempfile.TemporaryDirectory(prefix=".repository-", dir=image.cache_dir()) as temporary:
        folder = Path(temporary) / "repository"
        pool = folder / "debian/pool"
        pool.mkdir(parents=True)
        archive = Archive(Path(temporary) / "apt", suite, sources.read())
        offered = closure(archive.packages(), [*_set(names), *names.extra, *EXTRA])
        driver = [package for package in offered if package.source in names.sources]
        chosen = plan(description.driver, driver, _set(names))
        rows = _packages(archive, pool, offered, names, chosen, content)
        if description.container_toolkit:
            rows += standins_toolkit.packages(pool)
        for version in chosen.versions:
            rows += [(f.name, "stand-in") for f in fabric.packages(pool, description.distribution, version)]
            rpms.driver_set(folder / "rpm", version)
        rows.append((fabric.subnet_manager(pool).name, "stand-in"))
        rows += [(file.name, "stand-in") for file in sorted((folder / "rpm").glob("*.rpm"))]
        with repository_signing.signer() as signer:
            repository_index.apt(folder / "debian", SUITE, signer)
            repository_index.rpm(folder / "rpm", signer)
            signer.export(folder)
        table = "".join(f"{name}\t{kind}\n" for name, kind in sorted(rows))
        (folder / "CONTENT.tsv").write_text(table, encoding="utf-8")
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        os.replace(folder, made)


def _packages(archive: Archive, pool: Path, offered: Iterable[Package], names: DriverPackages, chosen: Plan,
              content: Content) -> list[tuple[str, str]]:  # fmt: skip
    kept = image.cache_dir() / "packages"
    kept.mkdir(exist_ok=True)
    wanted = [
        package
        for package in offered
        if package.source not in names.sources
        or upstream(package.version) in chosen.real
        or (chosen.rewritten and upstream(package.version) == chosen.base)
    ]
    rows: list[tuple[str, str]] = []
    for package, deb in zip(wanted, archive.download(wanted, kept), strict=True):
        of_driver, version = package.source in names.sources, upstream(package.version)
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
    found = (
        driver_packages("debian", distribution.removeprefix("debian")) if distribution in image.DISTRIBUTIONS else None
    )
    if found is None:
        allowed = ", ".join(image.DISTRIBUTIONS)
        raise GpuprovError(f'distribution is "{distribution}"; allowed: {allowed}')
    return found


def _set(names: DriverPackages) -> list[str]:
    return list(dict.fromkeys((*names.proprietary, *names.open)))


def _own_content() -> Content:
    from gpuprov.simulate.parts import nvml, silicon

    return Content(silicon.dkms_source, nvml.package_files)


def _key(description: Description, names: DriverPackages, content: Content) -> str:
    """A hash of what decides the content, but for what Debian offers today: as with images, `rebuild` fetches that."""
    digest = hashlib.sha256()
    mine = Path(__file__).parent
    code = [*mine.glob("repository*.py"), mine / "debs.py", mine / "rpms.py", mine / "parts/fabric.py"]
    code += [*mine.glob("parts/packages_files/*.c"), *mine.glob("parts/fabric_files/*")]
    digest.update(
        repr((description.distribution, description.driver, _set(names), names.extra, sources.read())).encode()
    )
    for file in sorted(code):
        digest.update(file.name.encode() + file.read_bytes())
    for version in ("1", "999"):  # on either side of all that depends on the branch
        for flavour in sorted(set(KERNEL.values())):
            digest.update(repr(sorted(content.kernel_source(version, flavour).items())).encode())
    if description.container_toolkit:
        digest.update(standins_toolkit.key().encode())
    for path, entry in sorted(content.nvml("1").items()):
        body = entry.content.read_bytes() if isinstance(entry.content, Path) else entry.content
        digest.update(path.encode() + body)
    return digest.hexdigest()[:16]
