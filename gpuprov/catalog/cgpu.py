"""Alibaba Cloud's cGPU: the nodes of /proc/cgpu_km, the meaning of a policy's number, the drivers that work with each
version."""

from functools import partial

from gpuprov.catalog.reader import Fact, File, load
from gpuprov.core.safe_parse import parse_version
from gpuprov.host_code.at_boot import cgpu as program

ROOT, CONFIG = program.ROOT, program.CONFIG
UNIT = "gpuprov-cgpu.service"
INSTALLER = (
    "gpuprov does not install cGPU, which is Alibaba's: on ACK, label the node ack.node.gpu.schedule=cgpu; "
    "elsewhere, install.sh of Alibaba's package"
)


class Policy(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A value of the node `policy`."""

    value: int
    name: str
    meaning: str


class Node(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file in a GPU's folder, and the values that it takes."""

    key: str
    least: int
    most: int


class Module(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A kernel module that brings /proc/cgpu_km."""

    key: str


class Drivers(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The driver branches that the cGPU versions from `first` to `last` work with, each with its newest driver or
    nothing."""

    first: str
    last: str
    branches: dict[str, str]


class Until(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The newest version that has a defect."""

    last: str


class CgpuFile(File, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """data/cgpu.yaml"""

    policies: tuple[Policy, ...]
    nodes: tuple[Node, ...]
    modules: tuple[Module, ...]
    drivers: tuple[Drivers, ...]
    deadlock: Until


read_cgpu_file = partial(load, "cgpu", CgpuFile)


def get_bounds(key: str) -> tuple[int, int]:
    """Return the minimum and maximum value of a node."""
    return next((node.least, node.most) for node in read_cgpu_file().nodes if node.key == key)


def find_drivers(version: str) -> Drivers | None:
    """Return the documented facts about a cGPU version; None if no documentation names it, such as a newer one."""
    return next(
        (
            entry
            for entry in read_cgpu_file().drivers
            if parse_version(entry.first) <= parse_version(version) <= parse_version(entry.last)
        ),
        None,
    )


def find_newest() -> Drivers:
    """Return the documented facts about the newest cGPU versions."""
    return max(read_cgpu_file().drivers, key=lambda entry: parse_version(entry.last))


def explain_unfit(version: str, driver: str) -> str:
    """Return the reason why a cGPU version does not work with a driver (`570`, `470.199.02`); "" if it does or nothing
    is documented."""
    known = find_drivers(version)
    if known is None or not driver:
        return ""
    branch = driver.partition(".")[0]
    if branch not in known.branches:
        return f"cGPU {known.first} to {known.last} work with drivers of {', '.join(known.branches)}, not with {driver}"
    last = known.branches[branch]
    if last and "." in driver and parse_version(driver) > parse_version(last):
        return f"cGPU {known.first} to {known.last} work with drivers of {branch} up to {last}, not with {driver}"
    return ""


def is_known_to_deadlock(version: str) -> bool:
    """Return whether this version is known to lock up the kernel."""
    return () < parse_version(version) <= parse_version(read_cgpu_file().deadlock.last)
