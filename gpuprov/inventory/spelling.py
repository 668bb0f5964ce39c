"""Spelling mistakes that a parser reports far from their place: an unclosed quote, a range in shell syntax."""

import re
from collections.abc import Sequence

from gpuprov.inventory import ranges
from gpuprov.spec.problem import Origin, Problem

_YAML = re.compile(r"line (\d+), column \d+")
_BRACKET = re.compile(
    r"while parsing a flow (?:mapping|sequence)\s+in \"[^\"]*\", line (?P<line>\d+), column (?P<column>\d+)"
    r"\s+did not find expected ',' or '(?P<end>[}\]])'\s+in \"[^\"]*\", line (?P<later>\d+), column (?P<at>\d+)"
)
_OPENED = re.compile(r"""(?:^[ ]*|[:,\[{-][ ]+|[\[{])(?P<quote>["'])""")
_KEY = re.compile(r"([\w.-]+)[ ]*:[ ]*\Z")


def open_quote(error_text: str, place: Origin, lines: Sequence[str]) -> Problem | None:
    """Return a problem for the first quote before the place of a YAML error that is not closed in its line."""
    numbers = [int(number) for number in _YAML.findall(error_text)]
    if not numbers:
        return None
    for number, line in enumerate(lines[: max(numbers)], 1):
        column = find_unclosed(line)
        if column is None:
            continue
        quote, key = line[column], _KEY.search(line[:column])
        where = f"the value of {key[1]}" if key else "the text"
        message = "the quote that opens here is not closed in this line"
        return Problem(message=message, origin=Origin(place.file, number, column + 1), hint=f"end {where} with {quote}")
    return None


def open_bracket(error_text: str, place: Origin, _: Sequence[str]) -> Problem | None:
    """Return a problem for a bracket that is not closed, which YAML notices at some later line."""
    seen = _BRACKET.search(error_text)
    if not seen:
        return None
    line, column, later, at = (int(seen[name]) for name in ("line", "column", "later", "at"))
    opened, closed = ("{", "}") if seen["end"] == "}" else ("[", "]")
    if later == line:
        message, hint = (
            f'a "," or "{closed}" is missing before this',
            f'separate what is inside {opened}{closed} by ","',
        )
        return Problem(message=message, origin=Origin(place.file, later, at), hint=hint)
    message = f"the {opened} that opens here is not closed"
    return Problem(message=message, origin=Origin(place.file, line, column), hint=f"end it with {closed}")


def find_unclosed(line: str) -> int | None:
    """Return the column of a quote that opens in a line and is not closed in it."""
    start = 0
    while opened := _OPENED.search(line, start):
        if re.search(r"(?:\A|[ ])#", line[start : opened.start("quote")]):
            return None
        quote, at = opened["quote"], opened.start("quote")
        rest = re.compile(r'(?:[^"\\]|\\.)*"' if quote == '"' else "(?:[^']|'')*'").match(line, at + 1)
        if not rest:
            return at
        start = rest.end()
    return None


def find_open_section(error_text: str, place: Origin, lines: Sequence[str]) -> Problem | None:
    """Return a problem for a section of an INI file whose name does not end, which Ansible cannot unpack."""
    if "not enough values to unpack" not in error_text:
        return None
    for number, line in enumerate(lines, 1):
        if line.startswith("[") and "]" not in line:
            message = "the [ that opens a section here is not closed"
            return Problem(message=message, origin=Origin(place.file, number, 1), hint=f"write {line.split()[0]}]")
    return None


def find_shell_range(error_text: str, place: Origin, lines: Sequence[str]) -> Problem | None:
    """Return a problem for a name in an INI file that is a range to the shell or Slurm, but not to Ansible."""
    if "host range must" not in error_text:
        return None
    for number, line in enumerate(lines, 1):
        name = line.split()[0] if line.split() else ""
        if meant := ranges.correct_range(name) if not name.startswith("[") else "":
            message = f"the range in {ranges.show(name)} cannot be read"
            return Problem(message=message, origin=Origin(place.file, number, 1), hint=f"write {meant}")
    return None
