"""Alibaba Cloud's eRDMA: the installer's versions, build requirements, the driver's parameters, ports and MTU."""

from functools import partial

from gpuprov.catalog.rdma.installers import Published
from gpuprov.catalog.reader import Fact, load
from gpuprov.host_code.at_boot import erdma as program

# gpuprov's own file; /etc/modprobe.d/erdma.conf is the driver package's, and holds its softdep.
OPTIONS = "/etc/modprobe.d/gpuprov-erdma.conf"
VENDOR_OPTIONS = "/etc/modprobe.d/erdma.conf"
SOFTDEP = "softdep erdma pre: ib_uverbs"
CONFIG = program.CONFIG
UNIT = "gpuprov-erdma.service"
CACHE = "/var/cache/gpuprov/erdma"
# Maximum size of an installer in bytes; Alibaba's have some MiB.
MOST = 1 << 30
MODES = {True: "compat", False: "iWARP"}


class Build(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Packages that the build of the driver needs."""

    family: str
    packages: tuple[str, ...]


class Parameter(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A parameter of the driver; without bounds it is a bool."""

    key: str
    least: int | None = None
    most: int | None = None


class Ports(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The ports that compat mode binds."""

    base: int
    count: int
    udp: int


class Mtu(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The MTU by the instance's jumbo frame setting."""

    jumbo: int
    standard: int


class Ofed(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The place where the build finds OFED, and the symbol that identifies a module built against it."""

    folder: str
    symbol: str


class ErdmaFile(Published, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """data/erdma.yaml"""

    build: tuple[Build, ...]
    parameters: tuple[Parameter, ...]
    ports: Ports
    mtu: Mtu
    ofed: Ofed


read_erdma_file = partial(load, "erdma", ErdmaFile)


def get_mtu(setting: str) -> int:
    """The MTU for `jumbo` or `standard`."""
    return read_erdma_file().mtu.jumbo if setting == "jumbo" else read_erdma_file().mtu.standard


def list_ports(parameters: dict[str, bool | int]) -> range:
    """The TCP ports that compat mode binds."""
    known = read_erdma_file().ports
    base = int(parameters.get("reserve_ports_base", known.base))
    return range(base, base + known.count)


def get_parameter(key: str) -> Parameter:
    """One of the driver's parameters."""
    return next(entry for entry in read_erdma_file().parameters if entry.key == key)


def format_parameter(value: bool | int) -> str:
    """A parameter's value as sysfs shows it."""
    return ("Y" if value else "N") if isinstance(value, bool) else str(value)
