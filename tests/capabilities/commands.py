"""Commands that a finding names ("see" and "fix"), by the family of the host: can an administrator type them there?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from gpuprov.capabilities.base import Check, Context, Outcome
from gpuprov.facts.probes.base import ProbeFailed
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.host.family import TOOLS, Family, family

_WORD = re.compile(r"(?<![\w./'\"-])([a-z][a-z0-9-]*)(?![\w.=/-])")
_ONLY: dict[Family, frozenset[str]] = {
    "debian": frozenset({"apt", "grub-reboot", "update-grub"}),
    "redhat": frozenset({"yum"}),
    "suse": frozenset({"grub2-once"}),
}
"""Beside `TOOLS`."""
_PLACEHOLDER = re.compile(r"\b(?:NAME|UNIT|KERNEL|VERSION|HOST|NODE|PACKAGE|DEVICE|NETDEV|X-Y|x\.y)\b|<[a-z]+>")
_UNITS = re.compile(
    r"(?:systemctl (?:--\S+ )*(?:status|cat|is-enabled|restart|enable|disable|start|stop|mask|unmask|reset-failed)|"
    r"journalctl -u)((?: (?:--now|'?[\w@*.:-]+'?))+)"
)


def has(kind: Family) -> set[str]:
    return {*TOOLS[kind], *_ONLY[kind]}


def foreign(text: str, kind: Family) -> list[str]:
    """Programs in the text that the family does not have, though another one does."""
    known = set().union(*(has(one) for one in TOOLS))
    return sorted({word for word in _WORD.findall(text) if word in known and word not in has(kind)})


def placeholders(command: str) -> list[str]:
    """What a person would have to replace; a column's heading that kubectl prints is none."""
    return _PLACEHOLDER.findall(re.sub(r"custom-columns=\S+", "", command))


def units(text: str) -> Iterator[str]:
    """The units that commands in the text name."""
    for match in _UNITS.finditer(text):
        yield from (
            word.strip("'") for word in match[1].split() if word.startswith(("'", *"abcdefghijklmnopqrstuvwxyz"))
        )


def judged(check: Check, ctx: Context[Any], outcome: Outcome) -> None:
    """Raise where what a check says of this host is for another distribution, or has a placeholder in it."""
    if outcome.status == "pass":
        return
    try:
        kind = family(ctx.facts.get(system.OS_RELEASE))
    except ProbeFailed:
        return
    if kind:
        wrong = foreign(outcome.fix, kind) + placeholders(outcome.fix)
        assert not wrong, f"{check.id} on {kind}: {wrong} in {outcome.fix!r}"
