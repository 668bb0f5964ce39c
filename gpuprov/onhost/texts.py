"""Texts of a host as results that can travel: JSON has characters, and what a host holds or prints is bytes."""

from __future__ import annotations

import re
from typing import Any

_NO_CHARACTER = re.compile("[\ud800-\udfff]")
r"""A byte that was decoded with `surrogateescape` is a lone surrogate, which Ansible refuses, the whole result with it."""


def readable(value: Any) -> Any:
    r"""Plain data with `\x80` for a byte that is no UTF-8 and `\ud800` for half of a pair, in every text and key.

    What is to be written back is not sent through this: its bytes would be other ones.
    """
    if isinstance(value, bytes):
        return readable(value.decode("utf-8", "surrogateescape"))
    if isinstance(value, str):
        return _NO_CHARACTER.sub(_escape, value)
    if isinstance(value, dict):
        return {readable(key): readable(item) for key, item in value.items()}
    return [readable(item) for item in value] if isinstance(value, (list, tuple, set, frozenset)) else value


def _escape(match: re.Match[str]) -> str:
    number = ord(match[0])
    return f"\\x{number - 0xDC00:02x}" if 0xDC80 <= number <= 0xDCFF else f"\\u{number:04x}"
