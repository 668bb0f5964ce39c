"""Ranges of hosts (`gpu[001:032]`), judged before they are expanded: Ansible makes every name first and looks later."""

from __future__ import annotations

import re

from ansible import plugins
from ansible.errors import AnsibleError
from ansible.plugins import inventory as module

from gpuprov.inventory.origin import plain
from gpuprov.reading import DIGITS, Unreadable, whole
from gpuprov.shown import counted
from gpuprov.spec import build

MOST = 100_000
"""Hosts of one inventory."""
MOST_RANGES = 8
"""Ranges in one name; each is expanded inside the one before."""

_RANGE = re.compile(r"\[([^\[\]]*)\]")
_SHELL = re.compile(r"([\[{])(\d+|[A-Za-z])(?:-|\.\.|:)(\d+|[A-Za-z])[\]}]")
_LIST = re.compile(r"([\w.-]*)[\[{](\w+(?:, ?\w+){1,15})[\]}]([\w.-]*)")
_expand = module.expand_hostname_range


def expand(line: str) -> list[str]:
    """The names, as Ansible has them. Raises AnsibleError for a range that means too many."""
    try:
        judge(line)
    except Unreadable as error:
        raise AnsibleError(error.message) from error
    names: list[str] = _expand(line)
    return names


def judge(name: str) -> None:
    """Raise Unreadable for ranges that mean too many hosts, or that never end; what is no range is left to Ansible."""
    found = _RANGE.findall(name)
    if len(found) > MOST_RANGES:
        raise Unreadable(f"{show(name)} has {len(found)} ranges", f"{MOST_RANGES}")
    count = 1
    for inner in found:
        first, _, rest = inner.partition(":")
        last, _, step = rest.partition(":")
        bounds = (whole(first or "0"), whole(last), whole(step or "1"))
        if any(len(word) > DIGITS and word.isdecimal() for word in (first, last, step)):
            raise Unreadable(f"{show(name)} has a number of too many digits", f"{DIGITS}")
        if bounds[2] == 0:
            raise Unreadable(f"{show(name)} is a range with a step of 0", "1 or more")
        if bounds[0] is not None and bounds[1] is not None and bounds[2]:
            count *= len(range(bounds[0], bounds[1] + 1, bounds[2]))
    if count > MOST:
        raise Unreadable(f"{show(name)} is a range of {counted(count, 'host')}", f"{MOST} in one inventory")


def corrected(name: str) -> str:
    """What to write for hosts as the shell or Slurm name them: gpu[01-16], gpu{01..16}, gpu[1,4]; empty if it is none of these."""
    if several := _LIST.fullmatch(name):
        before, items, after = several.groups()
        return ", ".join(f"{before}{item.strip()}{after}" for item in items.split(",")) + ", each on a line of its own"
    made = _SHELL.sub(r"[\2:\3]", name)
    if made == name:
        return ""
    try:
        judge(made)
        _expand(made)
    except (AnsibleError, Unreadable, ValueError):
        return ""
    return made


def show(name: str) -> str:
    """The name in quotes, short enough for a message."""
    return build.show(plain(name))


def bound() -> None:
    """Let Ansible's inventory plugins expand ranges as `expand` does."""
    vars(plugins.inventory)["expand_hostname_range"] = expand
