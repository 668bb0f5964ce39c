"""`scontrol show node` of Slurm 17.11 to 25.11, as text or JSON -> one node. https://slurm.schedmd.com/scontrol.html"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from gpuprov import reading

HELD = frozenset({"DRAIN", "DOWN", "FAIL", "ERROR"})
"""States in which nothing new starts."""
REBOOTING = frozenset({"REBOOT", "REBOOT_REQUESTED", "REBOOT_ISSUED", "BOOTING"})
BUSY = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})
ALIASES = {"DRAINED": "DRAIN", "DRAINING": "DRAIN", "FAILING": "FAIL"}
MARKS = {"*": "NOT_RESPONDING", "@": "REBOOT", "^": "REBOOT"}
"""Characters behind a state, of versions that write `DOWN*+DRAIN`: https://slurm.schedmd.com/sinfo.html#SECTION_NODE-STATE-CODES"""
STATE = re.compile(r"([A-Z_]+)([*~#!%$@^+-]*)\Z")
SIGNED = re.compile(r"(?P<reason>.*) \[(?P<user>[^\[\]\s]+)@[0-9T:-]+\]\Z", re.DOTALL)
NAMED = re.compile(r"NodeName=(\S+)")
WHERE = re.compile(r"(?:\A|\s)State=(\S+)")
"""The first one: what people may write stands in the lines below it."""
CONTINUED = " " * 10
"""Before each further line of a reason that has several."""


class Node(msgspec.Struct, frozen=True):
    """One node. `reason` is as it was set, to the byte; `user` set it, which is SlurmUser where slurmctld added to it."""

    name: str
    states: frozenset[str]
    reason: str = ""
    user: str = ""

    @property
    def shown(self) -> str:
        """In Slurm's own words."""
        states = "+".join(sorted(self.states))
        return f"State={states} Reason={self.reason}" if self.reason else f"State={states}"


def of_json(text: bytes, name: str) -> Node | None:
    """The node of this name; None where there is none. Raises reading.Unreadable."""
    document = reading.json(text, reading.LARGEST)
    nodes = document.get("nodes") if isinstance(document, dict) else None
    if not isinstance(nodes, list):
        raise reading.Unreadable("no list of nodes in it")
    found = [node for node in nodes if isinstance(node, dict) and node.get("name") == name]
    if not found:
        return None
    node: dict[str, Any] = found[0]
    told = [*_words(node.get("state")), *_words(node.get("state_flags"))]
    if not told:
        raise reading.Unreadable("no state in it")
    states = frozenset(state for one in told for state in _states(one.upper()))
    reason, user = node.get("reason"), node.get("reason_set_by_user")
    return Node(name, states, _text(reason), _text(user))


def of_text(text: str, name: str) -> Node | None:
    """The same of the text form; None where it is of no node of this name. Raises reading.Unreadable."""
    lines = text.splitlines()
    named = NAMED.match(lines[0]) if lines else None
    if named is None:
        raise reading.Unreadable("no NodeName in it")
    if named[1] != name:
        return None
    at = next((number for number, line in enumerate(lines) if line.startswith("   Reason=")), len(lines))
    state = next((found[1] for line in lines[:at] if (found := WHERE.search(line))), "")
    if not state:
        raise reading.Unreadable("no State in it")
    return Node(name, frozenset(_states(state)), *_reason(lines[at:]))


def _reason(lines: list[str]) -> tuple[str, str]:
    """Reason= and its further lines. The first one has who set it, and when, at its end."""
    if not lines:
        return "", ""
    first, more = lines[0].removeprefix("   Reason="), []
    for line in lines[1:]:
        if not line.startswith(CONTINUED):
            break
        more.append(line.removeprefix(CONTINUED))
    signed = SIGNED.match(first)
    start, user = (signed["reason"], signed["user"]) if signed else (first, "")
    return "\n".join([start, *more]), user


def _states(text: str) -> list[str]:
    found = []
    for word in text.split("+"):
        match = STATE.match(word)
        if match is None:
            raise reading.Unreadable(f"the state {text[:60]!r} is not known")
        found += [ALIASES.get(match[1], match[1]), *(MARKS[mark] for mark in match[2] if mark in MARKS)]
    return found


def _words(value: object) -> list[str]:
    """A state of any version: one text, or a list of texts."""
    values = value if isinstance(value, list) else [value]
    return [one for one in values if isinstance(one, str) and one]


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
