"""Texts of a host in a form that results can hold: JSON has characters, and a host's files and output are bytes."""

from __future__ import annotations

import re
from typing import Any

# A byte that was decoded with `surrogateescape` is a lone surrogate, which Ansible refuses, the whole result with it.
_NO_CHARACTER = re.compile("[\ud800-\udfff]")


def make_readable(value: Any) -> Any:
    r"""Return plain data with `\x80` for a byte that is not UTF-8 and `\ud800` for half of a surrogate pair, in every
    text and key.

    Not for data that is written back: its bytes would differ.
    """
    if isinstance(value, bytes):
        return make_readable(value.decode("utf-8", "surrogateescape"))
    if isinstance(value, str):
        return _NO_CHARACTER.sub(_escape, value)
    if isinstance(value, dict):
        return {make_readable(key): make_readable(item) for key, item in value.items()}
    return [make_readable(item) for item in value] if isinstance(value, (list, tuple, set, frozenset)) else value


def _escape(match: re.Match[str]) -> str:
    number = ord(match[0])
    return f"\\x{number - 0xDC00:02x}" if 0xDC80 <= number <= 0xDCFF else f"\\u{number:04x}"
