"""Driver branches and versions: their order, their end of life, and the kernel modules for each GPU."""

from __future__ import annotations

import re
from datetime import date
from functools import cache
from typing import NamedTuple

import msgspec

from gpuprov.catalog.drivers.data import Branch, Lifecycle, read_drivers_file
from gpuprov.catalog.gpus import Flavour, Gpu
from gpuprov.catalog.reader import BranchFact, Confidence
from gpuprov.core.errors import GpuprovError
from gpuprov.rules import resolve


class Version(msgspec.Struct, frozen=True, order=True):
    """A driver version as numbers, for comparing: 535.98 < 535.104.05 < 535.261.03."""

    parts: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> Version:
        """Parse '535.261.03', a branch ('535'), or a package version: epoch and revision are ignored
        ('3:535.261.03-1')."""
        match = re.fullmatch(r"(?:\d+:)?(\d{1,18}(?:\.\d{1,18})*)(?:[-+~].*)?", text.strip())
        if not match:
            raise GpuprovError(f"{text!r} is not a driver version", "A driver version is like 535.261.03.")
        return cls(tuple(int(part) for part in match[1].split(".")))

    @property
    def is_branch(self) -> bool:
        """True for a branch alone ("535")."""
        return len(self.parts) == 1


class EndOfLife(NamedTuple):
    """`ended`: None when not known. `month`: last supported month ("2028-06") or "". `text`: for people."""

    ended: bool | None
    month: str
    text: str
    confidence: Confidence


def list_branches() -> tuple[Branch, ...]:
    """All branches, oldest first."""
    return read_drivers_file().branches


def list_lifecycles() -> tuple[Lifecycle, ...]:
    """Return how long branches of each type are supported."""
    return read_drivers_file().lifecycles


def list_settled() -> tuple[str, ...]:
    """Return production and long-term support branches, which are preferred to a New Feature Branch if any version will
    do."""
    return tuple(entry.branch for entry in list_branches() if entry.type in ("PB", "LTSB"))


@cache
def index_by_name() -> dict[str, Branch]:
    return {entry.branch: entry for entry in list_branches()}


def derive_branch(version: str) -> str:
    """Return the branch: '535.261.03' -> '535'; a branch is its own. Raises GpuprovError for anything else."""
    return str(Version.parse(version).parts[0])


def find_branch(version: str) -> Branch | None:
    """Return the branch of a version or branch; None if the catalogue does not know it."""
    return index_by_name().get(derive_branch(version))


def end_of_life(branch: str, today: date | None = None) -> EndOfLife:
    """Return whether support of the branch has ended. A branch counts as supported until the end of its last month.

    A branch that is not in the catalogue is unknown, not ended.
    """
    entry = find_branch(branch)
    if entry is None:
        return EndOfLife(None, "", f"branch {branch} is not in the catalogue", "unconfirmed")
    if entry.eol:
        now = today or date.today()
        ended = entry.eol < f"{now.year:04}-{now.month:02}"
        extra = f" ({entry.eol_text})" if entry.eol_text else ""
        text = f"support of branch {entry.branch} {'ended' if ended else 'ends'} {entry.eol}{extra}"
        return EndOfLife(ended, entry.eol, text, entry.sure("eol"))
    if entry.ended:
        extra = f" ({entry.eol_text})" if entry.eol_text else ""
        return EndOfLife(True, "", f"support of branch {entry.branch} is over{extra}", entry.sure("ended"))
    return EndOfLife(None, "", f"end of support of branch {entry.branch} is not known", entry.sure("eol"))


def is_before(branch: str, fact: BranchFact) -> bool:
    return int(derive_branch(branch)) < int(fact.branch)


def hedge_fact(fact: BranchFact) -> str:
    return "" if fact.confidence == "confirmed" else f" ({fact.confidence})"


def choose_kernel_modules(gpu: Gpu, branch: str) -> Flavour:
    """Return the flavour to install if the spec does not name one. `explain_refusal` decides whether it can work at
    all."""
    ids = [entry.id for entry in gpu.pci_ids]
    needs: dict[str, str] = dict.fromkeys(ids, gpu.kernel_modules.flavour)
    return "open" if resolve.flavour("auto", ids, needs, derive_branch(branch))["flavour"] == "open" else "proprietary"


def explain_refusal(gpu: Gpu, branch: str, flavour: Flavour) -> str | None:
    """Return the reason why this GPU cannot run with this branch and flavour, and the fix; None if it can.

    `branch` may be a full version. A reason that is not confirmed says so.
    """
    name, modules, who = derive_branch(branch), read_drivers_file().modules, f"{gpu.key} ({gpu.arch})"
    if gpu.last_branch and int(name) > int(gpu.last_branch.branch):
        last = gpu.last_branch
        return (
            f"{who} is not supported by branch {name}: {last.branch} is the last{hedge_fact(last)}; use {last.branch}"
        )
    if gpu.min_branch and is_before(branch, gpu.min_branch):
        first = gpu.min_branch
        return f"{who} is not known to branch {name}: it needs {first.branch} or newer{hedge_fact(first)}"
    if flavour == "open":
        if gpu.kernel_modules.flavour == "proprietary-required":
            return f"{who} has no GSP, which open kernel modules need; use proprietary kernel modules"
        if is_before(branch, modules.open_first_branch):
            first = modules.open_first_branch
            return f"branch {name} has no open kernel modules: {first.branch} is the first{hedge_fact(first)}"
    else:
        if gpu.kernel_modules.flavour == "open-required":
            return f"{who} works with open kernel modules only; use open kernel modules"
        if not is_before(branch, modules.open_only_since):
            first = modules.open_only_since
            return f"branch {name} has no proprietary kernel modules: open only since {first.branch}{hedge_fact(first)}"
    return None
