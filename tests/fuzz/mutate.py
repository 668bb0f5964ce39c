"""Mutations of texts and of plain data, all drawn from one seeded generator."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

HOSTILE = (
    "²", "٣", "１２", "9" * 18, "9" * 19, "9" * 400, "9" * 4301, "-1", "-0", "0x", "0xffffffffffffffffff", "1e999", "nan",
    "inf",
    "0-9999999999", "0-3,", "5-", "1_000", "", " ", "\t", "|", "||||||||", "=", ":", ",", "/", "\\", '"', "'", "\x00",
    "\r", "\x1b[2J",
    "\x85", "\u2028", "�", "é", "\U0001f600", "N/A", "None", "null", "true", "{}", "[]", "[" * 150, "{" * 150,
    '{"a":' * 120,
    "&a [*a]",
    "*a", "<<: 1", "!!int x", "../../etc", "%s%n", "{{ 7 * 7 }}", "$(id)", "a" * 3000, "0000:00:00.0",
    "ffffffff:ff:1f.7", "10de:ffff",
)  # fmt: skip
"""Words that break careless readers."""


def text(random: Random, seeds: Sequence[str], words: Sequence[str] = ()) -> str:
    """A seed, changed in one to six places."""
    found = random.choice(seeds)
    for _ in range(random.choice((1, 1, 1, 2, 2, 3, 6))):
        changed = _pumped(random, found) if random.random() < 0.02 else _once(random, found, seeds, words)
        found = changed[:40_000]
    return found


def _once(random: Random, old: str, seeds: Sequence[str], words: Sequence[str]) -> str:
    how = random.randrange(12)
    at = random.randrange(len(old) + 1)
    if how == 0:
        return old[:at]
    if how == 1:
        return old[:at] + random.choice(HOSTILE) + old[at:]
    if how == 2:
        return old[:at] + random.choice(HOSTILE) + old[at + random.randrange(1, 20) :]
    if how == 3:
        return old[:at] + old[at + random.randrange(1, 60) :]
    if how == 4:
        other = random.choice(seeds)
        return old[:at] + other[random.randrange(len(other) + 1) :]
    if how == 5 and words:
        return old[:at] + "\n" + random.choice(words) + random.choice(HOSTILE) + "\n" + old[at:]
    if how == 6:
        return (
            old[:at]
            + chr(random.choice((0, 9, 10, 13, 32, 34, 39, 44, 45, 46, 47, 58, 61, 92, 124, 178, 0x661, 0xFFFD)))
            + old[at + 1 :]
        )
    lines = old.split("\n")
    number = random.randrange(len(lines))
    if how == 7:
        del lines[number]
    elif how == 8:
        lines.insert(random.randrange(len(lines) + 1), lines[number])
    elif how == 9:
        cells = lines[number].split(random.choice("| \t=,:"))
        cells[random.randrange(len(cells))] = random.choice(HOSTILE)
        lines[number] = random.choice("| \t=,:").join(cells)
    elif how == 10:
        separator = random.choice("| \t=,:")
        lines[number] = separator.join(lines[number].split(separator)[: random.randrange(1, 4)])
    else:
        separator = random.choice("| \t=,:")
        lines[number] = separator.join(lines[number].split(separator) * random.choice((2, 3, 40)))
    return "\n".join(lines)


PUMPED = 30_000


def _pumped(random: Random, old: str) -> str:
    """A few characters of it, again and again: what takes the square of a text's length in a reader takes seconds."""
    at = random.randrange(len(old) + 1)
    unit = old[at : at + random.choice((1, 1, 2, 4, 9))] or " "
    return old[:at] + unit * (PUMPED // len(unit)) + old[at:]


VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 5, 2**63, 2**200, 1.5, float("inf"), float("nan"), "", "x", "²", "9" * 400, "580",
    "a\nb", "\x00",
    "é",
    [], {}, [None], [[]], [{}], [1, "1"], {"": None}, {"a": {"a": {}}}, {1: 2}, {None: 1}, ["1g.10gb"],
    {"1g.10gb": "x"}, "{{ x }}",
)  # fmt: skip
"""Values in the place of other values."""


def data(random: Random, value: Any, seeds: Sequence[Any] = VALUES) -> Any:
    """Plain data with one value, key or item changed somewhere below."""
    if isinstance(value, dict) and value and random.random() < 0.85:
        copy = dict(value)
        key = random.choice(list(copy))
        how = random.random()
        if how < 0.65:
            copy[key] = data(random, copy[key], seeds)
        elif how < 0.75:
            del copy[key]
        elif how < 0.85:
            copy[random.choice((5, None, True, "", "²", f"{key}x", "version", "9" * 300))] = copy[key]
        else:
            copy[key] = random.choice(seeds)
        return copy
    if isinstance(value, list) and value and random.random() < 0.85:
        items = list(value)
        at = random.randrange(len(items))
        items[at] = data(random, items[at], seeds)
        return items if random.random() < 0.8 else items * random.choice((2, 50))
    if isinstance(value, str) and random.random() < 0.5:
        return text(random, (value,))[:2000]
    return random.choice(seeds)
