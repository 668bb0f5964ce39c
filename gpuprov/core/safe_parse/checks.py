"""Texts that nest too deep, stand for too much or have numbers that are too long, told before their reader meets
them."""

import re
from collections.abc import Iterator
from typing import Any

from gpuprov.core.safe_parse.limits import ALIASED, DEPTH, DIGITS, LONGEST_LINE, LONGEST_NUMBER, Unreadable

_NUMBER_LIKE = re.compile(r"[-+]?(?:0x[0-9a-fA-F_]++|(?=[._:]*+[0-9])[0-9._:]++(?:[eE][-+]?[0-9]*+)?)\Z")
_JSON_PARTS = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[{]|[\]}]|-?[0-9][-+0-9.eE]*', re.DOTALL)
_PART = r"""(?:"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+'|[A-Za-z0-9_-]++)"""
_DOTTED = re.compile(rf"(?<![A-Za-z0-9_\\-]){_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{DEPTH}}}")
_SURROGATES = re.compile(r"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|(?P<lone>u[dD][89a-fA-F]..)|.)", re.DOTALL)


def check_json(text: str) -> None:
    """Raise Unreadable where a JSON text nests too deep or has a number that is too long; a text that is not JSON
    passes."""
    if text.lstrip()[:1] in ("{", "["):  # else it holds no more than one value
        check_brackets(text)


def check_brackets(text: str) -> None:
    """Check, as `check_json` does, any text with brackets, strings in double quotes and numbers."""
    depth = 0
    for part in _JSON_PARTS.finditer(text):
        first = part[0][0]
        if first in "[{":
            depth += 1
            if depth > DEPTH:
                raise make_depth_error(*find_place(text, part.start()))
        elif first in "]}":
            depth -= 1
        elif first != '"' and len(part[0]) > LONGEST_NUMBER:
            raise make_length_error(len(part[0]), *find_place(text, part.start()))


def check_toml(text: str) -> None:
    """Raise Unreadable where a TOML text nests too deep: tomllib calls itself for each bracket, and takes the square of
    the time and of the memory for dotted keys."""
    check_brackets(text)
    if match := _DOTTED.search(text):
        raise make_depth_error(*find_place(text, match.start()))


def check_yaml(text: str) -> None:
    """Raise Unreadable where a YAML text nests too deep, refers to itself, or its aliases or a number are too much.

    A text that is not YAML passes as far as it goes: its reader says what is wrong with it.
    """
    # Not with a line that is too long: Ansible looks through it for what may be meant, and takes the square of its
    # length.
    import yaml as reader

    loader: Any = getattr(reader, "CSafeLoader", reader.SafeLoader)
    try:
        _check_events(reader.parse(text, Loader=loader))
    except reader.MarkedYAMLError as error:
        if (mark := error.problem_mark) and any(len(line) > LONGEST_LINE for line in text.splitlines()):
            raise Unreadable(f"not valid YAML: {error.problem}", "", mark.line + 1, mark.column + 1) from error
    except (reader.YAMLError, UnicodeError):
        return


def check_unicode(text: str) -> None:
    r"""Raise Unreadable for a JSON text with half of a pair of surrogates (`\ud800`), which no other text can hold."""
    if text.lstrip()[:1] in ("{", "[") and "\\u" in text:
        for match in _SURROGATES.finditer(text):
            if match["lone"]:
                raise Unreadable(f"\\{match['lone']} is not a character", "", *find_place(text, match.start("lone")))


class _Node:
    """A node and what is below it, with aliases followed. `is_open`: its end has not come."""

    __slots__ = ("height", "is_open", "nodes")

    def __init__(self, *, is_open: bool = False) -> None:
        self.nodes, self.height, self.is_open = 1, 0, is_open


def _check_events(events: Iterator[Any]) -> None:
    from yaml import events as kinds

    known: dict[str, _Node] = {}
    stack: list[_Node] = []
    aliased = 0
    for event in events:
        if isinstance(event, kinds.CollectionEndEvent):
            node = stack.pop()
            node.height, node.is_open = node.height + 1, False
        elif isinstance(event, kinds.AliasEvent):
            node = follow_event(event, known, len(stack))
            aliased += node.nodes
            if aliased > ALIASED:
                raise Unreadable("the aliases stand for too much", f"{ALIASED} values", *get_mark(event))
        elif isinstance(event, kinds.NodeEvent):
            node = _Node(is_open=isinstance(event, kinds.CollectionStartEvent))
            if event.anchor:
                known[event.anchor] = node
            if node.is_open:
                stack.append(node)
                if len(stack) > DEPTH:
                    raise make_depth_error(*get_mark(event))
                continue
            _check_scalar(event)
        else:
            continue
        if stack:
            stack[-1].nodes += node.nodes
            stack[-1].height = max(stack[-1].height, node.height)


def follow_event(event: Any, known: dict[str, _Node], depth: int) -> _Node:
    node = known.get(event.anchor) or _Node()
    if node.is_open:
        raise Unreadable(f"*{event.anchor} refers to itself", "", *get_mark(event))
    if depth + node.height > DEPTH:
        raise make_depth_error(*get_mark(event))
    return node


def _check_scalar(event: Any) -> None:
    if event.implicit[0] and len(event.value) > LONGEST_NUMBER and _NUMBER_LIKE.match(event.value):
        raise make_length_error(len(event.value), *get_mark(event))


def check_values(value: object) -> None:
    """Judge what a reader without limits of its own has made: depth and numbers."""
    waiting: list[tuple[object, int]] = [(value, 1)]
    while waiting:
        current, depth = waiting.pop()
        if isinstance(current, dict | list):
            if depth > DEPTH:
                raise make_depth_error()
            waiting += [(item, depth + 1) for item in (current.values() if isinstance(current, dict) else current)]
        elif type(current) is int and current.bit_length() > 64:
            raise Unreadable("a number has too many digits", f"{DIGITS}")


def get_mark(event: Any) -> tuple[int, int]:
    return event.start_mark.line + 1, event.start_mark.column + 1


def find_place(text: str, at: int) -> tuple[int, int]:
    return text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)


def make_depth_error(line: int = 0, column: int = 0) -> Unreadable:
    return Unreadable("mappings and lists stand too deep in each other", f"{DEPTH} levels", line, column)


def make_length_error(length: int, line: int = 0, column: int = 0) -> Unreadable:
    return Unreadable(f"a number of {length} characters", f"{LONGEST_NUMBER}; quote it if it is text", line, column)
