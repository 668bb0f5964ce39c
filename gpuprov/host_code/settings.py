"""Values of settings, compared in one way by the controller and by hosts. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

# Predicates. EQUAL: the same words. LEAST: a number that is at least as large, or no limit. EXACT: the same text.
EQUAL, LEAST, EXACT = "equal", "least", "exact"
ENDLESS = ("unlimited", "infinity")


def is_met(desired: str, actual: str | None, how: str = EQUAL) -> bool:
    """Return whether an actual value, None where there is none, meets the desired one; blanks between words count as
    one."""
    if actual is None:
        return False
    if how == EXACT:
        return actual == desired
    if how != LEAST:
        return _fold_words(actual) == _fold_words(desired)
    if actual in ENDLESS:
        return True
    return desired not in ENDLESS and _is_number(actual) and _is_number(desired) and int(actual) >= int(desired)


def _fold_words(text: str) -> list[str]:
    """Return the words of a value; hexadecimal numbers as the kernel shows them, in decimal."""
    return [str(int(word, 16)) if re.fullmatch("0[xX][0-9a-fA-F]{1,16}", word) else word for word in text.split()]


def _is_number(text: str) -> bool:
    """Return whether a text is a whole number of 64 bits: `int` refuses thousands of digits, which a host may print."""
    return text.isascii() and text.isdecimal() and len(text) <= 20


def list_unmet(desired: Mapping[str, str], actual: Mapping[str, str]) -> dict[str, str]:
    """Return the actual values that do not meet the desired ones, by name; "" where there is none."""
    return {name: actual.get(name, "") for name, value in desired.items() if not is_met(value, actual.get(name))}
