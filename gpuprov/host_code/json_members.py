"""Single members of a JSON document from another source, by dotted path. Both the controller and hosts compare them
here.

Comments (`//` and `/* */`), which NVIDIA's libraries read, and all other members stay as they are.
"""

from __future__ import annotations

import json
import re
from typing import Any, Mapping, Sequence, Tuple, Union

# Any JSON document: for values that are only passed on.
Json = Union[None, bool, int, float, str, Sequence["Json"], Mapping[str, "Json"]]
# Ending of the names of files that hold such a document.
SUFFIX = ".json"

_BLANK = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_SCALARS = json.JSONDecoder()
_LARGEST_DEPTH = 32
Names = Tuple[str, ...]


class NotJson(ValueError):
    """A text that is not a JSON document whose top is an object; the message gives the line."""


def differing(text: str, keys: Mapping[str, str]) -> dict[str, str]:
    """Return the members that have another value, as `PATH=TEXT`, by path; "" for one that is not set. Raises
    NotJson."""
    document = _Document(text)
    wrong = {}
    for key, value in keys.items():
        names = tuple(key.split("."))
        if names not in document.spans:
            wrong[key] = ""
        elif _format_plain(document.values[names]) != _format_plain(json.loads(value)):
            start, end = document.spans[names]
            wrong[key] = f"{key}={' '.join(text[start:end].split())}"
    return wrong


def with_keys(text: str, keys: Mapping[str, str]) -> str:
    """Return the document with these values (each in JSON), the rest unchanged; an empty text counts as `{}`. Raises
    NotJson."""
    for key in differing(text, keys):
        text = _add_member(text if text.strip() else "{}\n", tuple(key.split(".")), keys[key])
    return text


def _format_plain(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _add_member(text: str, names: Names, value: str) -> str:
    document = _Document(text)
    if names in document.spans:
        start, end = document.spans[names]
        return f"{text[:start]}{value}{text[end:]}"
    depth = max(count for count in range(len(names)) if names[:count] in document.spans)
    above = names[:depth]
    if above not in document.opened:  # something else than an object is in its place
        start, end = document.spans[above]
        return _add_member(f"{text[:start]}{{}}{text[end:]}", names, value)
    for name in reversed(names[depth + 1 :]):
        value = f"{{{json.dumps(name)}: {value}}}"
    indent, place = "    " * (depth + 1), document.opened[above]
    after = "," if document.values[above] else "\n" + "    " * depth
    return f"{text[:place]}\n{indent}{json.dumps(names[depth])}: {value}{after}{text[place:]}"


class _Document:
    """The values of a document by the names that lead to them, where each is in the text, and where each object
    begins."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.values: dict[Names, Any] = {}
        self.spans: dict[Names, tuple[int, int]] = {}
        self.opened: dict[Names, int] = {}
        if not text.strip():
            return
        at = self._value(self._skip(0), ())
        if () not in self.opened or self._skip(at) != len(text):
            raise self._error(at)

    def _error(self, at: int) -> NotJson:
        line = self.text.count("\n", 0, at) + 1
        return NotJson(f"line {line} is not JSON, or the top is not an object")

    def _skip(self, at: int) -> int:
        match = _BLANK.match(self.text, at)
        return match.end() if match else at

    def _value(self, at: int, names: Names) -> int:
        """Read a value; return the place after it."""
        start, first = at, self.text[at : at + 1]
        if len(names) > _LARGEST_DEPTH:
            raise self._error(at)
        for old in [
            known for known in self.spans if known[: len(names)] == names
        ]:  # a name that is there twice: the last counts
            del self.spans[old]
            self.opened.pop(old, None)
        if first == "{":
            self.opened[names] = at + 1
            at, self.values[names] = self._object(at + 1, names)
        elif first == "[":
            at, self.values[names] = self._array(at + 1, names)
        else:
            at, self.values[names] = self._scalar(at)
        self.spans[names] = (start, at)
        return at

    def _scalar(self, at: int) -> tuple[int, Any]:
        try:
            value, end = _SCALARS.raw_decode(self.text, at)
        except ValueError:
            raise self._error(at) from None
        return end, value

    def _object(self, at: int, names: Names) -> tuple[int, dict[str, Json]]:
        members: dict[str, Json] = {}
        at = self._skip(at)
        while self.text[at : at + 1] != "}":
            at, name = self._scalar(at)
            at = self._skip(at)
            if not isinstance(name, str) or self.text[at : at + 1] != ":":
                raise self._error(at)
            at = self._value(self._skip(at + 1), (*names, name))
            members[name] = self.values[(*names, name)]
            at = self._next(at, "}")
        return at + 1, members

    def _array(self, at: int, names: Names) -> tuple[int, list[Any]]:
        items: list[Any] = []
        at = self._skip(at)
        while self.text[at : at + 1] != "]":
            inside = (*names, "")  # no name leads to an element
            at = self._value(at, inside)
            items.append(self.values[inside])
            at = self._next(at, "]")
        return at + 1, items

    def _next(self, at: int, end: str) -> int:
        """Return the place of the next member after a comma, or of the end."""
        at = self._skip(at)
        if self.text[at : at + 1] == ",":
            return self._skip(at + 1)
        if self.text[at : at + 1] != end:
            raise self._error(at)
        return at
