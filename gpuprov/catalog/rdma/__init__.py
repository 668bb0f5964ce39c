"""The inbox RDMA stack: packages by distribution family, modules, kernels that lack one, services that lock memory."""

from functools import partial
from typing import Literal

from gpuprov.catalog.reader import Fact, File, load
from gpuprov.host_code.at_boot import soft

SOFT_CONFIG, SOFT_MODULES = soft.CONFIG, soft.MODULES
SOFT_UNIT = "gpuprov-rdma-soft.service"
# UDP port of RoCE v2: https://www.iana.org/assignments/service-names-port-numbers
ROCE_PORT = 4791
# https://salsa.debian.org/hpc-team/opensm: opensm.service starts opensm@GUID.service for each port; elsewhere it is the
# daemon.
OPENSM_UNIT = "opensm.service"


Family = Literal["debian", "redhat", "suse"]


class Packages(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The packages that a fabric, or opensm, needs in each family of distributions; None if unknown."""

    key: str
    debian: tuple[str, ...]
    redhat: tuple[str, ...]
    suse: tuple[str, ...] | None = None


class Modules(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Kernel modules that a fabric, or a part of it, needs."""

    key: str
    names: tuple[str, ...]


class Absent(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A distribution's kernels (whose release ends with `suffix`) that are built or packaged without a module."""

    module: str
    distribution: str
    suffix: str
    fix: str


class Daemon(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A systemd unit."""

    key: str


class RdmaFile(File, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """data/rdma.yaml"""

    packages: tuple[Packages, ...]
    modules: tuple[Modules, ...]
    absent: tuple[Absent, ...]
    daemons: tuple[Daemon, ...]


read_rdma_file = partial(load, "rdma", RdmaFile)


def list_packages(family: Family, *keys: str) -> tuple[str, ...]:
    """Names of the packages of these keys, in a family."""
    rows = (row for row in read_rdma_file().packages if row.key in keys)
    return tuple(name for row in rows for name in find_names(row, family) or ())


def list_unknown(family: Family, *keys: str) -> tuple[str, ...]:
    """Return the keys without known package names in a family."""
    return tuple(row.key for row in read_rdma_file().packages if row.key in keys and find_names(row, family) is None)


def find_names(row: Packages, family: Family) -> tuple[str, ...] | None:
    return {"debian": row.debian, "redhat": row.redhat, "suse": row.suse}[family]


def list_modules(*keys: str) -> tuple[str, ...]:
    """Names of the modules of these keys."""
    return tuple(name for row in read_rdma_file().modules if row.key in keys for name in row.names)


def explain_absence(module: str, distribution: str, release: str) -> str:
    """Return the known facts about a module that a kernel lacks, with the fix; "" if there are none."""
    rows = (row for row in read_rdma_file().absent if row.module == module and row.distribution == distribution)
    return next((row.fix for row in rows if release.endswith(row.suffix)), "")
