"""NVIDIA's DOCA-OFED: its packages, its kernel modules, its service, and the systems that it does not build on."""

from functools import partial
from typing import Literal

from gpuprov.catalog.reader import Fact, File, Note, load
from gpuprov.core.safe_parse import parse_version

UNIT = "openibd.service"
CONFIG = "/etc/infiniband/openib.conf"
PROFILE = "doca-ofed"
PIN = "/etc/apt/preferences.d/gpuprov-doca"
# The folder into which the named doca-host package is fetched; below it, the file is named after its checksum.
PLACE = "/var/lib/gpuprov/doca-host"
UNINSTALL = "/usr/sbin/ofed_uninstall.sh --force"
# Kernel headers, without which DKMS builds nothing for a kernel; same as in the driver's catalogue (part
# kernel-headers).
HEADERS = {"debian": "linux-headers-{kernel}", "redhat": "kernel-devel-{kernel}"}
# Families of distributions whose package names are known.
FAMILIES = ("debian", "redhat")
# Maximum size of a doca-host package in bytes; those that contain a whole repository have several hundred MiB.
MOST = 4 << 30


class Package(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A package by family, empty if it has none."""

    key: str
    debian: str = ""
    redhat: str = ""
    # Its version is OFED's release.
    kernel: bool = False
    # gpuprov holds it.
    held: bool = True


class Module(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A kernel module or DKMS tree by its role: `dkms` (built for every kernel), `core` (must be OFED's), `storage`
    (uses ib_core, and is unloaded before openibd restarts), `peer` (the same, of GPUs), `other` (to be rebuilt after
    OFED)."""

    key: str
    role: Literal["dkms", "core", "storage", "peer", "other"]


class Unbuildable(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """OFED up to `last` does not build on this distribution from its release `first` on."""

    like: str
    first: str
    last: str
    why: str
    way: str


class OfedFile(File, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """data/rdma_ofed.yaml"""

    packages: tuple[Package, ...]
    modules: tuple[Module, ...]
    keys: tuple[Note, ...]
    unbuildable: tuple[Unbuildable, ...]


read_ofed_file = partial(load, "rdma_ofed", OfedFile)


def list_modules(role: str) -> tuple[str, ...]:
    """Names of one role."""
    return tuple(module.key for module in read_ofed_file().modules if module.role == role)


def list_packages(family: str, *, held: bool = False, kernel: bool = False) -> tuple[str, ...]:
    """Names in a family: all, those that are held, or those whose version is OFED's release."""
    chosen = [
        package
        for package in read_ofed_file().packages
        if (package.held or not held) and (package.kernel or not kernel)
    ]
    return tuple(
        name for package in chosen if (name := {"debian": package.debian, "redhat": package.redhat}.get(family, ""))
    )


def find_unbuildable(family: str, version: str, ofed: str) -> Unbuildable | None:
    """Return the reason why this OFED release does not build on this distribution; None if nobody has reported one."""
    return next(
        (
            entry
            for entry in read_ofed_file().unbuildable
            if entry.like == family
            and parse_version(entry.first)[:1] == parse_version(version)[:1]
            and parse_version(entry.first) <= parse_version(version)
            and () < parse_version(ofed)[:2] <= parse_version(entry.last)
        ),
        None,
    )


def is_fitting(actual: str, requested: str) -> bool:
    """Return whether a release is the requested one, to the precision of the request: 25.10-1.7.1 is 25.10."""
    return not requested or actual == requested or actual.startswith((f"{requested}-", f"{requested}."))


def name_headers(family: str, kernel: str) -> str:
    """Return the package without which DKMS builds nothing for this kernel."""
    return HEADERS[family].replace("{kernel}", kernel)
