"""NVIDIA's doca-host package on this host: installed, so that its package source exists, and the lists of that source
fetched."""

from __future__ import annotations

import os
from functools import partial
from typing import Iterator

from .failed import Failed
from .files import read, write
from .packages import apt_files
from .packages.commands import Ran, run, shorten_end
from .packages.dnf import makecache
from .packages.model import Settings

NAME = "doca-host"
APT, DNF = "/etc/apt/sources.list.d", "/etc/yum.repos.d"
# Suffix of the file beside a package that marks it as installed.
DONE = ".done"


def add(package: str, named: str) -> None:
    """Install the package at this path; `named` is its name in the spec. Raises Failed."""
    (install_deb if package.endswith(".deb") else install_rpm)(package)
    write(package + DONE, f"{named}\n")


def install_deb(package: str) -> None:
    _check(run(["dpkg-deb", "-f", package, "Package"]), "it is no Debian package")
    _must(run(["dpkg", "-i", package], {"DEBIAN_FRONTEND": "noninteractive"}), "dpkg -i")
    sources = [path for path in list_files(APT) if NAME in read(path)]
    if not sources:
        raise Failed("it brought no package source for apt")
    for source in () if os.environ.get("GPUPROV_BUNDLE") else sources:
        update = partial(apt_files.update, source, "-o", "APT::Get::List-Cleanup=0")
        if problem := apt_files.wait_and_fetch(update, Settings().lock_timeout):
            raise Failed(f"apt-get update of {source}: {shorten_end(problem, 400)}")


def install_rpm(package: str) -> None:
    _check(run(["rpm", "-qp", "--qf", "%{NAME}", package]), "it is no rpm package")
    _must(run(["rpm", "-U", "--replacepkgs", "--oldpackage", package]), "rpm -U")
    if not any("doca" in os.path.basename(path) for path in list_files(DNF)):
        raise Failed("it brought no package source for dnf")
    if os.environ.get("GPUPROV_BUNDLE"):
        return
    if problem := makecache("--disablerepo=*", "--enablerepo=doca*", patience=Settings().lock_timeout):
        raise Failed(f"dnf makecache: {shorten_end(problem, 400)}")


def _check(ran: Ran, otherwise: str) -> None:
    """Refuse a file that is no package, or another package, before any of it runs."""
    if ran.status:
        raise Failed(otherwise)
    name = ran.out.strip()
    if not name.startswith(NAME):
        raise Failed(f"it is {name}, not {NAME}")


def _must(ran: Ran, what: str) -> None:
    if ran.status:
        raise Failed(f"{what}: {shorten_end(ran.message[-400:], 400) or f'status {int(ran.status)}'}")


def list_files(folder: str) -> Iterator[str]:
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    return (path for path in (os.path.join(folder, name) for name in names) if os.path.isfile(path))
