"""Readers, with limits, of what hosts print and inventories contain: size, depth, aliases, digits, numbers in a range.

Each reader returns plain values or raises Unreadable; no text can exhaust the memory, the stack or the patience of the
process that reads it. libyaml's composer and Python's recursive readers cannot promise that themselves: a composer that
calls itself for each of 100,000 brackets ends the process by a signal, and forty aliases stand for more nodes than
there is memory.
"""

from gpuprov.core.safe_parse.checks import check_json, check_toml, check_unicode, check_yaml
from gpuprov.core.safe_parse.documents import Tree, TreeView, parse_json, parse_toml, parse_typed_json, parse_yaml
from gpuprov.core.safe_parse.files import (
    LOOP,
    NotOwn,
    explain_refusal,
    is_planted,
    judge_file,
    judge_lines,
    read_beginning,
    read_contents,
    read_named,
    read_own_contents,
)
from gpuprov.core.safe_parse.limits import DIGITS, FILE, HOST_TEXT, LARGEST, Unreadable
from gpuprov.core.safe_parse.numbers import (
    is_whole,
    parse_number,
    parse_numbers,
    parse_signed,
    parse_version,
    parse_whole,
)
from gpuprov.core.safe_parse.places import parse_placed_yaml
from gpuprov.core.safe_parse.texts import format_document, make_all_well_formed, make_well_formed

__all__ = [
    "DIGITS",
    "FILE",
    "HOST_TEXT",
    "LARGEST",
    "LOOP",
    "NotOwn",
    "Tree",
    "TreeView",
    "Unreadable",
    "check_json",
    "check_toml",
    "check_unicode",
    "check_yaml",
    "explain_refusal",
    "format_document",
    "is_planted",
    "is_whole",
    "judge_file",
    "judge_lines",
    "make_all_well_formed",
    "make_well_formed",
    "parse_json",
    "parse_number",
    "parse_numbers",
    "parse_placed_yaml",
    "parse_signed",
    "parse_toml",
    "parse_typed_json",
    "parse_version",
    "parse_whole",
    "parse_yaml",
    "read_beginning",
    "read_contents",
    "read_named",
    "read_own_contents",
]
