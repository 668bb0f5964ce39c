"""Network adapters: lines of their drivers in the kernel log, with a verdict, and counters of errors."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Literal

from gpuprov.catalog.reader import Fact, File, load
from gpuprov.catalog.xids import Action

ALL = "all"
"""In `clears`: every line before, but for those that only a boot makes past."""


class NicLine(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message of one or more drivers, by the texts that stand in it as printed.

    `clears`: keys of the entries whose earlier lines of the same device are past after this one.
    `until`: what else makes the line past: the driver's next loading of the device (or a boot), or a boot alone.
    """

    key: str
    drivers: tuple[str, ...]
    signatures: tuple[str, ...]
    verdict: Literal["unfit", "reported", "recovered"]
    action: Action = "none"
    clears: tuple[str, ...] = ()
    until: Literal["reload", "boot"] = "reload"
    cause: str = ""
    cure: str = ""
    example: str

    @property
    def check(self) -> str:
        """A command that shows such lines."""
        return f"journalctl -k -b | grep -wE '{'|'.join(self.drivers)}'"

    def makes_past(self, earlier: NicLine) -> bool:
        """True if a line of `earlier`, of the same device, is past after this one."""
        return earlier.key in self.clears or (ALL in self.clears and earlier.until == "reload")


class Counter(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An error counter of `hw_counters` in sysfs, by its name there."""

    key: str
    text: str


class NicsFile(File, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """data/nics.yaml"""

    counters: tuple[Counter, ...]
    lines: tuple[NicLine, ...]


def nics_file() -> NicsFile:
    return load("nics", NicsFile)


@cache
def _by_driver() -> Mapping[str, tuple[NicLine, ...]]:
    lines = nics_file().lines
    names = dict.fromkeys(driver for line in lines for driver in line.drivers)
    return {name: tuple(line for line in lines if name in line.drivers) for name in names}


def find_nic_line(driver: str, text: str) -> NicLine | None:
    """The entry that judges what a driver said; None for what means nothing."""
    entries = _by_driver().get(driver, ())
    return next((entry for entry in entries if any(words in text for words in entry.signatures)), None)
