"""Network adapters: lines of their drivers in the kernel log, with a verdict, and counters of errors."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from typing import Literal, NamedTuple

from gpuprov.catalog.reader import Fact, File, load
from gpuprov.catalog.xids import Action

# In `clears`: every earlier line, except those that only a boot clears.
ALL = "all"


class NicLine(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message of one or more drivers, by the texts in it as printed."""

    key: str
    drivers: tuple[str, ...]
    signatures: tuple[str, ...]
    verdict: Literal["unfit", "reported", "recovered"]
    action: Action = "none"
    # Keys of the entries whose earlier lines of the same device are obsolete after this one.
    clears: tuple[str, ...] = ()
    # Other events that make the line obsolete: the driver's next loading of the device (or a boot), or a boot alone.
    until: Literal["reload", "boot"] = "reload"
    # `cause` and `fix`: empty where a file of symptoms has the key.
    cause: str = ""
    fix: str = ""
    example: str

    @property
    def check(self) -> str:
        """A command that shows such lines."""
        return f"journalctl -k -b | grep -wE '{'|'.join((*self.drivers, 'infiniband'))}'"

    def makes_past(self, earlier: NicLine) -> bool:
        """True if a line of `earlier`, of the same device, is obsolete after this one."""
        return earlier.key in self.clears or (ALL in self.clears and earlier.until == "reload")


class Counter(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An error counter of `hw_counters` in sysfs, by its name there."""

    key: str
    text: str


class RdmaName(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Drivers that may have an RDMA device with this name prefix."""

    begins: str
    drivers: tuple[str, ...]


class NicsFile(File, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """data/nics.yaml"""

    rdma_names: tuple[RdmaName, ...]
    counters: tuple[Counter, ...]
    lines: tuple[NicLine, ...]


read_nics_file = partial(load, "nics", NicsFile)


_ADDRESS = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}[.][0-7]"
# The prefix of a line that names its driver: as __ibdev_printk does
# (https://github.com/torvalds/linux/blob/master/drivers/infiniband/core/device.c), or `infiniband NAME: `; that of the
# watchdog names the address since Linux 6.5, and `probe of` only until 6.10
# (https://github.com/torvalds/linux/blob/v6.6/drivers/base/dd.c).
SPOKEN = re.compile(
    rf"(?<![^\s])(?:(?P<driver>[\w-]{{1,40}}) (?P<address>{_ADDRESS})(?: (?P<name>[^\s:]{{1,40}}))?: "
    rf"|(?P<prober>[\w-]{{1,40}}): probe of (?P<probed>{_ADDRESS}) "
    r"|NETDEV WATCHDOG: (?P<interface>\S{1,40}) \((?P<of_interface>\w{1,40})\): |infiniband "
    r"(?P<device>[a-z][\w-]{0,63}): )",
    re.IGNORECASE,
)


class Speaker(NamedTuple):
    """The drivers that may have written a line, and the device: its address if the line has it, else its name."""

    drivers: frozenset[str]
    device: str
    # The name that stands beside an address.
    name: str = ""


def speaker(message: str) -> Speaker | None:
    """Return who wrote a message, without its time stamp; None if it does not begin with a driver's name."""
    match = SPOKEN.match(message)
    if match is None:
        return None
    if address := match["address"] or match["probed"]:
        return Speaker(_list_drivers(match), address.lower(), match["name"] or "")
    return Speaker(_list_drivers(match), match["interface"] or match["device"])


def find_speakers(line: str) -> frozenset[str] | None:
    """Return the drivers that may have written a line; None if it does not name them."""
    match = SPOKEN.search(line)
    return None if match is None else _list_drivers(match)


def _list_drivers(match: re.Match[str]) -> frozenset[str]:
    if device := match["device"]:
        file = read_nics_file()
        named = next((rule.drivers for rule in file.rdma_names if device.lower().startswith(rule.begins)), None)
        return frozenset(named or (driver for entry in file.lines for driver in entry.drivers))
    return frozenset([(match["driver"] or match["prober"] or match["of_interface"]).lower()])


def find_nic_line(drivers: Iterable[str], text: str) -> NicLine | None:
    """Return the entry for a line from one of these drivers, whatever its case; None for an irrelevant line."""
    known, lowered = set(drivers), text.casefold()
    return next(
        (
            entry
            for entry in read_nics_file().lines
            if not known.isdisjoint(entry.drivers) and any(words.casefold() in lowered for words in entry.signatures)
        ),
        None,
    )
