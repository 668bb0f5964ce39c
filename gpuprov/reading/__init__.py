"""Readers, with limits, of what hosts print and inventories contain: size, depth, aliases, digits, numbers in a range.

Each reader returns plain values or raises Unreadable; no text can exhaust the memory, the stack or the patience of the
process that reads it. libyaml's composer and Python's recursive readers cannot promise that themselves: a composer that
calls itself for each of 100,000 brackets ends the process by a signal, and forty aliases stand for more nodes than
there is memory.
"""

from gpuprov.reading.checks import check_json, check_toml, check_unicode, check_yaml
from gpuprov.reading.documents import json, toml, typed_json, yaml
from gpuprov.reading.files import (
    LOOP,
    NotOwn,
    beginning,
    contents,
    judge_file,
    judge_lines,
    named,
    own_contents,
    planted,
    refused,
)
from gpuprov.reading.limits import DIGITS, FILE, HOST_TEXT, LARGEST, Unreadable
from gpuprov.reading.numbers import is_whole, number, numbers, signed, whole
from gpuprov.reading.places import placed_yaml
from gpuprov.reading.texts import all_well_formed, as_document, well_formed

__all__ = [
    "DIGITS",
    "FILE",
    "HOST_TEXT",
    "LARGEST",
    "LOOP",
    "NotOwn",
    "Unreadable",
    "all_well_formed",
    "as_document",
    "beginning",
    "check_json",
    "check_toml",
    "check_unicode",
    "check_yaml",
    "contents",
    "is_whole",
    "json",
    "judge_file",
    "judge_lines",
    "named",
    "number",
    "numbers",
    "own_contents",
    "placed_yaml",
    "planted",
    "refused",
    "signed",
    "toml",
    "typed_json",
    "well_formed",
    "whole",
    "yaml",
]
