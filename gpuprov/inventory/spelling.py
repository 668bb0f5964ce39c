"""Spelling mistakes that a parser reports far from their place: an unclosed quote, a range in shell syntax."""

import re
from collections.abc import Sequence
from difflib import get_close_matches

from gpuprov.inventory import ranges
from gpuprov.spec.problem import Origin, Problem

_YAML = re.compile(r"line (\d+), column \d+")
_BRACKET = re.compile(
    r"while parsing a flow (?:mapping|sequence)\s+in \"[^\"]*\", line (?P<line>\d+), column (?P<column>\d+)"
    r"\s+did not find expected ',' or '(?P<end>[}\]])'\s+in \"[^\"]*\", line (?P<later>\d+), column (?P<at>\d+)"
)
_OPENED = re.compile(r"""(?:^[ ]*|[:,\[{-][ ]+|[\[{])(?P<quote>["'])""")
_ASSIGNMENT = re.compile(
    r"[Ee]xpected key=value, got: (?P<line>.*?)(?:\s\||\Z)"
    r"|[Ee]xpected key=value host variable assignment, got: (?P<word>\S+)"
)
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
        return Problem(message=message, origin=Origin(place.file, number, column + 1), fix=f"end {where} with {quote}")
    return None


def open_bracket(error_text: str, place: Origin, _: Sequence[str]) -> Problem | None:
    """Return a problem for a bracket that is not closed, which YAML notices at some later line."""
    seen = _BRACKET.search(error_text)
    if not seen:
        return None
    line, column, later, at = (int(seen[name]) for name in ("line", "column", "later", "at"))
    opened, closed = ("{", "}") if seen["end"] == "}" else ("[", "]")
    if later == line:
        message, fix = (
            f'a "," or "{closed}" is missing before this',
            f'separate what is inside {opened}{closed} by ","',
        )
        return Problem(message=message, origin=Origin(place.file, later, at), fix=fix)
    message = f"the {opened} that opens here is not closed"
    return Problem(message=message, origin=Origin(place.file, line, column), fix=f"end it with {closed}")


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
            return Problem(message=message, origin=Origin(place.file, number, 1), fix=f"write {line.split()[0]}]")
    return None


def find_foreign_space(error_text: str, place: Origin, lines: Sequence[str]) -> Problem | None:
    """Return a problem for the first no-break space before the place of a YAML error: word processors write them, and
    YAML takes them for letters."""
    numbers = [int(number) for number in _YAML.findall(error_text)]
    for number, line in enumerate(lines[: max(numbers, default=0)], 1):
        if (column := line.partition(" #")[0].find("\u00a0")) >= 0:
            message = "a no-break space stands here, which is a letter to YAML"
            return Problem(
                message=message, origin=Origin(place.file, number, column + 1), fix="type a space in its place"
            )
    return None


def find_section(error_text: str, place: Origin, lines: Sequence[str]) -> Problem | None:
    """Return a problem for a section of an INI file whose name or kind Ansible does not take."""
    seen = re.search(r"[Ii]nvalid section entry: '(\[.*?\])'|Section (\[[^\]]*\]) has unknown type", error_text)
    if not seen:
        return None
    title, _, kind = (seen[1] or seen[2]).strip("[]").partition(":")
    number = next((n for n, line in enumerate(lines, 1) if line.strip().startswith(seen[1] or seen[2])), 0)
    if seen[1]:
        message, fix = (
            f"the name of a section has a space: {seen[1]}",
            f"write [{re.sub(r'[^A-Za-z0-9_]+', '_', title)}]",
        )
    else:
        near = get_close_matches(kind, ("vars", "children", "hosts"), n=1, cutoff=0.6)
        message = f'a section of the kind "{kind}" is none that Ansible knows'
        fix = f"write [{title}:{near[0]}]" if near else "allowed: [NAME], [NAME:vars], [NAME:children]"
    return Problem(message=message, origin=Origin(place.file, number, 1 if number else 0), fix=fix)


def find_byte_order_mark(_: str, place: Origin, lines: Sequence[str]) -> Problem | None:
    """Return a problem for an INI file that begins with a mark of Windows editors, which Ansible takes for a name."""
    if not lines or not lines[0].startswith("\ufeff") or place.file.endswith((".yaml", ".yml", ".json")):
        return None
    message = "the file begins with a byte order mark, which an INI inventory cannot have"
    return Problem(message=message, origin=Origin(place.file, 1, 1), fix='save it as "UTF-8 without BOM"')


def find_ini_assignment(error_text: str, place: Origin, lines: Sequence[str]) -> Problem | None:
    """Return a problem for a line of an INI file whose words are not `name=value`: YAML's colon, a value with spaces,
    a host with what stands in /etc/hosts."""
    seen = _ASSIGNMENT.search(error_text)
    if not seen:
        return None
    whole, word = seen["line"], seen["word"]
    number = next((n for n, line in enumerate(lines, 1) if whole is not None and line.strip() == whole.strip()), 0)
    if whole is not None and (pair := re.fullmatch(r"\s*([A-Za-z_]\w*)\s*:\s*(.*?)\s*", whole)):
        message = f'"{pair[1]}:" is YAML, and this file is INI'
        return Problem(message=message, origin=Origin(place.file, number, 1), fix=f"write {pair[1]}={pair[2]}")
    for number, line in enumerate(lines, 1):
        name, *words = line.split() or [""]
        if word is None or not name or word not in words or line.lstrip().startswith(("#", ";", "[")):
            continue
        column = line.index(word, len(name)) + 1
        if value := re.search(r"(\w+)=([\[{].*[\]}])\s*\Z", line):
            message = f"the value of {value[1]} has spaces, and it is not quoted"
            return Problem(
                message=message,
                origin=Origin(place.file, number, value.start() + 1),
                fix=f"write {value[1]}='{value[2]}'",
            )
        if word == "=" or word.startswith("=") or line.rstrip().endswith("="):
            fix = f"write {re.sub(r' *= *', '=', line.strip())}"
            return Problem(message="there are spaces around =", origin=Origin(place.file, number, column), fix=fix)
        fix = f"write {words[0]} ansible_host={name}" if re.fullmatch(r"[0-9.]{7,15}", name) else "allowed: name=value"
        return Problem(
            message=f'"{word}" is not a variable of a host', origin=Origin(place.file, number, column), fix=fix
        )
    return None


def find_shell_range(error_text: str, place: Origin, lines: Sequence[str]) -> Problem | None:
    """Return a problem for a name in an INI file that is a range to the shell or Slurm, but not to Ansible."""
    if "host range must" not in error_text:
        return None
    for number, line in enumerate(lines, 1):
        name = line.split()[0] if line.split() else ""
        if meant := ranges.correct_range(name) if not name.startswith("[") else "":
            message = f"the range in {ranges.show(name)} cannot be read"
            return Problem(message=message, origin=Origin(place.file, number, 1), fix=f"write {meant}")
    return None
