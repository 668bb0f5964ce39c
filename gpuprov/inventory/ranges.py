"""Ranges of hosts (`gpu[001:032]`), checked before they are expanded: Ansible creates every name before it checks."""

import re

from ansible import plugins
from ansible.errors import AnsibleError
from ansible.plugins import inventory as module

from gpuprov.core.safe_parse import DIGITS, Unreadable, parse_whole
from gpuprov.core.sanitize import counted
from gpuprov.inventory.origin import strip_tags
from gpuprov.spec import shown

# Maximum number of hosts in an inventory.
MOST = 100_000
# Maximum number of ranges in a name; each is expanded inside the previous one.
MOST_RANGES = 8

_RANGE = re.compile(r"\[([^\[\]]*)\]")
_SHELL = re.compile(r"([\[{])(\d+|[A-Za-z])(?:-|\.\.|:)(\d+|[A-Za-z])[\]}]")
_LIST = re.compile(r"([\w.-]*)[\[{](\w+(?:-\d+)?(?:, ?\w+(?:-\d+)?){1,15})[\]}]([\w.-]*)")
_expand = module.expand_hostname_range


def expand(line: str) -> list[str]:
    """Return the names that Ansible would make. Raises AnsibleError for a range with too many."""
    try:
        judge(line)
    except Unreadable as error:
        raise AnsibleError(error.message) from error
    names: list[str] = _expand(line)
    return names


def judge(name: str) -> None:
    """Raise Unreadable for ranges with too many hosts, or without end; leave anything else to Ansible."""
    matches = _RANGE.findall(name)
    if len(matches) > MOST_RANGES:
        raise Unreadable(f"{show(name)} has {len(matches)} ranges", f"{MOST_RANGES}")
    count = 1
    for inner in matches:
        first, _, rest = inner.partition(":")
        last, _, step = rest.partition(":")
        bounds = (parse_whole(first or "0"), parse_whole(last), parse_whole(step or "1"))
        if any(len(word) > DIGITS and word.isdecimal() for word in (first, last, step)):
            raise Unreadable(f"{show(name)} has a number of too many digits", f"{DIGITS}")
        if bounds[2] == 0:
            raise Unreadable(f"{show(name)} is a range with a step of 0", "1 or more")
        if bounds[0] is not None and bounds[1] is not None and bounds[0] > bounds[1]:
            raise Unreadable(
                f"{show(name)} is a range that counts down", name.replace(f"{first}:{last}", f"{last}:{first}")
            )
        if bounds[0] is not None and bounds[1] is not None and bounds[2]:
            count *= len(range(bounds[0], bounds[1] + 1, bounds[2]))
    if count > MOST:
        raise Unreadable(f"{show(name)} is a range of {counted(count, 'host')}", f"{MOST} in one inventory")


def correct_names(name: str) -> list[str]:
    """Return the correct spelling of hosts written as for the shell or Slurm: gpu[01-16], gpu{01..16}, gpu[1,4-6];
    empty if it is none of these."""
    if several := _LIST.fullmatch(name):
        before, items, after = several.groups()
        parts = [re.sub(r"(\d+)-(\d+)", r"[\1:\2]", item.strip()) for item in items.split(",")]
        return [f"{before}{part}{after}" for part in parts]
    made = _SHELL.sub(r"[\2:\3]", name)
    if made == name:
        return []
    try:
        judge(made)
        _expand(made)
    except (AnsibleError, Unreadable, ValueError):
        return []
    return [made]


def correct_range(name: str) -> str:
    """Return the same as what to write into an inventory; "" if it is none of these."""
    names = correct_names(name)
    return ", ".join(names) + ", each on a line of its own" * (len(names) > 1)


def show(name: str) -> str:
    """Return the name in quotes, short enough for a message."""
    return shown.show(strip_tags(name))


def bind_expansion() -> None:
    """Make Ansible's inventory plugins expand ranges as `expand` does."""
    vars(plugins.inventory)["expand_hostname_range"] = expand
