"""Parser of `scontrol show node` of Slurm 17.11 to 25.11, as text or JSON. https://slurm.schedmd.com/scontrol.html"""

import re

import msgspec

from gpuprov.core import safe_parse
from gpuprov.host_code.json_members import Json

# States in which nothing new starts.
HELD = frozenset({"DRAIN", "DOWN", "FAIL", "ERROR"})
REBOOTING = frozenset({"REBOOT", "REBOOT_REQUESTED", "REBOOT_ISSUED", "BOOTING"})
BUSY = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})
ALIASES = {"DRAINED": "DRAIN", "DRAINING": "DRAIN", "FAILING": "FAIL"}
# Suffixes of a state, in versions that write `DOWN*+DRAIN`:
# https://slurm.schedmd.com/sinfo.html#SECTION_NODE-STATE-CODES
MARKS = {"*": "NOT_RESPONDING", "@": "REBOOT", "^": "REBOOT"}
# NodeName=gpu1 Arch=x86_64
#    State=DOWN*+DRAIN ThreadsPerCore=2
#    Reason=Not responding [slurm@2021-10-19T12:56:19]
STATE = re.compile(r"([A-Z_]+)([*~#!%$@^+-]*)\Z")
SIGNED = re.compile(r"(?P<reason>.*) \[(?P<user>[^\[\]\s]+)@[0-9T:-]+\]\Z", re.DOTALL)
NAMED = re.compile(r"NodeName=(\S+)")
# Matches the first one only: what people may write is in the lines below it.
WHERE = re.compile(r"(?:\A|\s)State=(\S+)")
# Prefix of each further line of a reason that has several.
CONTINUED = " " * 10


class Node(msgspec.Struct, frozen=True):
    """One node. `reason` is as it was set, to the byte; `user` set it, which is SlurmUser if slurmctld added to it."""

    name: str
    states: frozenset[str]
    reason: str = ""
    user: str = ""

    @property
    def shown(self) -> str:
        """State and reason in Slurm's own words."""
        states = "+".join(sorted(self.states))
        return f"State={states} Reason={self.reason}" if self.reason else f"State={states}"


def of_json(text: bytes, name: str) -> Node | None:
    """Parse the node of this name; None if there is none. Raises reading.Unreadable."""
    document = safe_parse.parse_json(text, safe_parse.LARGEST)
    nodes = document.get("nodes") if isinstance(document, dict) else None
    if not isinstance(nodes, list):
        raise safe_parse.Unreadable("no list of nodes in it")
    matching = [node for node in nodes if isinstance(node, dict) and node.get("name") == name]
    if not matching:
        return None
    node: dict[str, Json] = matching[0]
    words = [*_list_words(node.get("state")), *_list_words(node.get("state_flags"))]
    if not words:
        raise safe_parse.Unreadable("no state in it")
    states = frozenset(state for word in words for state in _parse_states(word.upper()))
    reason, user = node.get("reason"), node.get("reason_set_by_user")
    return Node(name, states, _parse_text(reason), _parse_text(user))


def of_text(text: str, name: str) -> Node | None:
    """Parse the text form; None if it is of no node of this name. Raises reading.Unreadable."""
    lines = text.splitlines()
    named = NAMED.match(lines[0]) if lines else None
    if named is None:
        raise safe_parse.Unreadable("no NodeName in it")
    if named[1] != name:
        return None
    at = next((number for number, line in enumerate(lines) if line.startswith("   Reason=")), len(lines))
    state = next((match[1] for line in lines[:at] if (match := WHERE.search(line))), "")
    if not state:
        raise safe_parse.Unreadable("no State in it")
    return Node(name, frozenset(_parse_states(state)), *_parse_reason(lines[at:]))


def _parse_reason(lines: list[str]) -> tuple[str, str]:
    """Parse Reason= and its further lines. The first line ends with who set it, and when."""
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


def _parse_states(text: str) -> list[str]:
    states = []
    for word in text.split("+"):
        match = STATE.match(word)
        if match is None:
            raise safe_parse.Unreadable(f"the state {text[:60]!r} is not known")
        states += [ALIASES.get(match[1], match[1]), *(MARKS[mark] for mark in match[2] if mark in MARKS)]
    return states


def _list_words(value: object) -> list[str]:
    """List the states of any version: one text, or a list of texts."""
    values = value if isinstance(value, list) else [value]
    return [word for word in values if isinstance(word, str) and word]


def _parse_text(value: object) -> str:
    return value if isinstance(value, str) else ""
