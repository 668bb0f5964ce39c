"""Slurm's lists of hosts and files: `gpu[01-04,07],login1` -> names.
https://slurm.schedmd.com/slurm.conf.html#OPT_NodeName"""

import re

from gpuprov.core import safe_parse
from gpuprov.core.safe_parse import Unreadable
from gpuprov.inventory.ranges import MOST

# Maximum number of brackets in one name; racks, chassis and nodes.
MOST_RANGES = 3
PART = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
BRACKETS = re.compile(r"\[([^\[\]]*)\]")


def expanded(text: str) -> list[str]:
    """Return the names in their order. Raises Unreadable for text that is not a list, or has too many names."""
    if set("[]") & set(BRACKETS.sub("", text)):
        raise Unreadable(f"{text[:80]!r}: a bracket without the other", "gpu[01-04,07]")
    names: list[str] = []
    for part in PART.findall(text):
        pieces = BRACKETS.split(part)
        if len(pieces) > 2 * MOST_RANGES + 1:
            raise Unreadable(f"{part[:80]!r} has too many brackets", f"{MOST_RANGES}")
        made = [""]
        for number, piece in enumerate(pieces):
            choices = _expand_numbers(piece) if number % 2 else [piece]
            if len(made) * len(choices) + len(names) > MOST:
                raise Unreadable(f"{part[:80]!r} means too many names", f"{MOST}")
            made = [start + end for start in made for end in choices]
        names += made
    return list(dict.fromkeys(name for name in names if name))


def _expand_numbers(inner: str) -> list[str]:
    """Expand `01-03,07` to 01, 02, 03, 07."""
    numbers: list[str] = []
    for part in inner.split(","):
        first, dash, last = part.strip().partition("-")
        low, high = (
            safe_parse.parse_whole(first),
            safe_parse.parse_whole(last) if dash else safe_parse.parse_whole(first),
        )
        if low is None or high is None or high < low or high - low >= MOST:
            raise Unreadable(f"{part[:80]!r} is no range of numbers", "01-04")
        numbers += [str(number).zfill(len(first)) for number in range(low, high + 1)]
    return numbers
