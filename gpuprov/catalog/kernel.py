"""Lines of the kernel's log that are neither Xids nor of a network adapter: how they begin, and what they mean for the
host."""

import re
from collections.abc import Iterable
from functools import cache, partial
from typing import Literal

import msgspec

from gpuprov.catalog.nics import read_nics_file
from gpuprov.catalog.reader import Fact, File, load
from gpuprov.catalog.xids import Action

Check = Literal["driver_log", "pcie_errors", "kernel", "programs"]
# Whether a line makes a host unfit for work, is only reported, or ends earlier lines.
Standing = Literal["unfit", "reported", "recovered"]

ADDRESS = "[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}[.][0-7]"
# Pattern of the beginning of a driver's line about a device: longer than the 15 characters that a program's name may
# have.
DEVICE = f"[a-z0-9_-]+ {ADDRESS}"
# The beginning of each line of NVIDIA's driver.
NVIDIA = "NVRM: "


class Context(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Words of which a line must contain one beside these signatures; beside all of the symptom if none is named."""

    words: tuple[str, ...]
    of: tuple[str, ...] = ()


class KernelLine(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A kind of line, by how it begins. `key`: of its symptom; `cause`, `look` and `fix` are empty if a file of
    symptoms has it, and `signatures` are then more of its texts.

    `device`: pattern whose group is the device. `of_program`: the line begins with a program's name. `clears`: keys of
    the entries whose earlier lines of the same device are obsolete after this one; `ends`: actions that earlier lines
    asked for, now done.
    """

    key: str
    check: Check
    begins: tuple[str, ...]
    verdict: Standing
    action: Action = "none"
    device: str = ""
    of_program: bool = False
    clears: tuple[str, ...] = ()
    ends: tuple[Action, ...] = ()
    signatures: tuple[str, ...] = ()
    needs: tuple[Context, ...] = ()
    cause: str = ""
    look: str = ""
    fix: str = ""
    examples: tuple[str, ...]


class KernelFile(File, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """data/kernel.yaml"""

    lines: tuple[KernelLine, ...]


kernel_file = partial(load, "kernel", KernelFile)


def pattern(line: KernelLine) -> str:
    """Return the extended regular expression for the beginning of such lines."""
    return "|".join(line.begins).replace("DEVICE", DEVICE)


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], KernelLine], ...]:
    return tuple((re.compile(pattern(line)), line) for line in kernel_file().lines)


def find_kernel_line(text: str, *, of_program: bool = False) -> KernelLine | None:
    """Return the entry for a message of the kernel, or for one that begins with a program's name; None for an
    irrelevant one."""
    return next((line for begins, line in _patterns() if line.of_program == of_program and begins.match(text)), None)


def beginnings(checks: Iterable[Check], *, of_program: bool = False) -> str:
    """Return one pattern for all lines of these checks: what a host looks for in its log."""
    chosen = set(checks)
    lines = (line for line in kernel_file().lines if line.check in chosen and line.of_program == of_program)
    return "|".join(map(pattern, lines))


@cache
def nic_drivers() -> tuple[str, ...]:
    """Return the drivers of network adapters whose lines are known."""
    return tuple(dict.fromkeys(driver for line in read_nics_file().lines for driver in line.drivers))
