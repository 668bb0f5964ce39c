"""Single lines KEY=VALUE in a file from another source. Both the controller and hosts compare them here.

The last line of a key is in effect, as for a shell and for systemd. Blanks around a line, and quotes around its value,
change nothing.
"""

from __future__ import annotations

import re
from typing import Mapping

# Maximum size of such a file, in KiB.
LARGEST = 64


def differing(text: str, keys: Mapping[str, str]) -> dict[str, str]:
    """Return the current lines of the keys that have another value, by key; "" for a key that is not set."""
    lines = {}
    for line in text.split("\n"):
        match = re.match(r"\s*([^\s=#]+)\s*=", line)
        if match and match.group(1) in keys:
            lines[match.group(1)] = line
    return {key: lines.get(key, "") for key, value in keys.items() if not is_set(lines.get(key, ""), key, value)}


def with_keys(text: str, keys: Mapping[str, str]) -> str:
    """Return the text with these values, each in place of its key's last line or at the end; the rest unchanged."""
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    wrong = differing(text, keys)
    for key, line in wrong.items():
        place = len(lines) - 1 - lines[::-1].index(line) if line else len(lines)
        lines[place : place + 1] = [f"{key}={keys[key]}"]
    return "".join(f"{line}\n" for line in lines) if wrong else text


def limit_mode(mode: int) -> int:
    """Return the mode that such a file keeps: only its owner, root, may write it."""
    return mode & ~0o022


def is_set(line: str, key: str, value: str) -> bool:
    line = line.strip(" \t")
    return line in (f"{key}={value}", f'{key}="{value}"')
