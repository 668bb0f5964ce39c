"""Reads inventories with mistakes as far as possible, so that a mistake in their form hides none in the specs.

What is mended is never used: each mistake is a problem, and a problem ends the command.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from ansible.errors import AnsibleError

from gpuprov.core.safe_parse import Unreadable
from gpuprov.inventory import ranges
from gpuprov.inventory.origin import strip_tags
from gpuprov.spec.problem import Problem

SECTIONS = ("hosts", "vars", "children")
# Mistakes of one file; each takes another parse.
ROUNDS = 30
_POSITION = re.compile(r"line (\d+), column (\d+)")
# Errors of YAML about one value, and the value at their place.
_VALUES: tuple[tuple[str, str], ...] = (
    (r"found undefined alias", r"\*[^\s,\[\]{}]+"),
    (r"could not determine a constructor for the tag", r"![^\s,\[\]{}]*(?: +[^\s,\[\]{}#'\"][^,\[\]{}#\n]*)?"),
    (r"missing quotes around a template|found unhashable key", r"\{\{[^{}\n]*\}\}"),
    (r"that cannot start any token", r"[@`%][^,\[\]{}\n]*"),
    (r"while scanning a quoted scalar", r"[\"'][^\n]*"),
)


class Blanked(NamedTuple):
    """A text without a value that cannot be read, and the place of the value."""

    text: str
    line: int
    column: int


def blank_value(error: str, text: str) -> Blanked | None:
    """Return the text with "" for the value that a YAML error is about, or spaces for tabs, and all else at its place;
    None if the error is of another kind."""
    lines = text.splitlines(keepends=True)
    if re.search(r"Tabs are usually invalid|found character '\\t'", error):
        return _indent_by_spaces(error, lines)
    for kind, value in _VALUES:
        for place in reversed(_POSITION.findall(error) if re.search(kind, error) else []):
            line, column = (int(number) for number in place)
            match = re.compile(value).match(lines[line - 1], column - 1) if line <= len(lines) else None
            if match and len(match[0]) >= 2:
                before, after = match.string[: column - 1], match.string[match.end() :]
                empty = "{}" if re.search(r"<<[ ]*:[ ]+\Z", before) else '""'
                if match[0].startswith("!") and " " not in match[0] and after.lstrip(" ")[:1] in tuple("[{\"'\n"):
                    empty = ""  # a collection or a quoted text, without its tag
                lines[line - 1] = before + empty.ljust(len(match[0])) + after
                return Blanked("".join(lines), line, column)
    return None


def _indent_by_spaces(error: str, lines: Sequence[str]) -> Blanked | None:
    """Return the lines with the indentation that those with tabs are likely to mean, by the lines above them; None if
    no line begins with one."""
    mended, above, depth = list[str](), "", 0
    for line in lines:
        rest = line.lstrip(" \t")
        tabs = line[: len(line) - len(rest)].count("\t")
        if tabs:
            opens = above.rstrip().endswith(":") and (not depth or tabs > depth)
            closed = max(depth - tabs, 0)
            line = " " * max(len(above) - len(above.lstrip(" ")) + 2 * opens - 2 * closed, 0) + rest
        mended.append(line)
        if rest.strip() and not rest.startswith("#"):
            above, depth = line, tabs
    first = next((number for number, line in enumerate(lines, 1) if mended[number - 1] != line), 0)
    places = [int(line) for line, _ in _POSITION.findall(error)]
    return Blanked("".join(mended), places[-1] if places else first, 1) if first else None


def correct_line(problem: Problem, text: str) -> str:
    """Return the text of an INI inventory with the line of a problem corrected, or else blank; empty for a problem
    without a line."""
    lines = text.splitlines()
    number = problem.origin.line if problem.origin else 0
    if not 0 < number <= len(lines) or not lines[number - 1].strip():
        return ""
    line = lines[number - 1]
    if line.startswith("\ufeff"):
        return text.removeprefix("\ufeff")
    name, *variables = line.split(maxsplit=1)
    if line.startswith("["):
        title, _, kind = line.strip("[] \t").partition(":")
        kinds = get_close_matches(kind, SECTIONS, n=1, cutoff=0.6) if kind else []
        mended = f"[{re.sub(r'[^A-Za-z0-9_]', '_', title)}{':' + kinds[0] if kinds else ''}]"
        lines[number - 1] = mended if mended != line else ""
    else:
        section = next((above for above in reversed(lines[:number]) if above.startswith("[")), "[]")
        names = ranges.correct_names(name) if "range" in problem.message else []
        kept = "" if "range" in problem.message or ":" in section else name
        lines[number - 1] = " ".join([names[0], *variables]) if names else kept
    return "\n".join(lines) + "\n"


def mend_document(document: Any) -> None:
    """Correct a YAML inventory in place: sections where they are meant, hosts without what cannot be read."""
    if not isinstance(document, dict):
        return
    for name, body in list(document.items()):
        if name == "gpuprov" or name in SECTIONS:
            del document[name]
            every = document.setdefault("all", {})
            if isinstance(every, dict):
                every.setdefault(name, body)
        elif not isinstance(name, str) or not isinstance(body, Mapping | None):
            del document[name]
    for body in document.values():
        _mend_group(body)


def _mend_group(body: Any) -> None:
    if not isinstance(body, dict):
        return
    for key, section in list(body.items()):
        meant = [key] if key in SECTIONS else get_close_matches(str(key), SECTIONS, n=1, cutoff=0.6)
        if key == "gpuprov":
            own = body.setdefault("vars", {})
            if isinstance(own, dict):
                own.setdefault(key, section)
        if meant != [key]:
            del body[key]
        if meant and (meant == [key] or meant[0] not in body):
            body[meant[0]] = section
    for key in SECTIONS:
        if isinstance(section := body.get(key), list) and key != "vars":
            body[key] = {name: None for name in section if isinstance(name, str)}
        elif isinstance(section, str) and key != "vars":
            body[key] = dict.fromkeys(filter(None, re.split(r"[\s,]+", section)))
        elif not isinstance(section, Mapping):
            body.pop(key, None)
    _drop(body.get("vars"), lambda name, _: not isinstance(name, str))
    _drop(body.get("children"), lambda name, group: not isinstance(name, str) or not isinstance(group, Mapping | None))
    for group in (body.get("children") or {}).values():
        _mend_group(group)
    if body.get("hosts"):
        body["hosts"] = dict(_mend_hosts(body["hosts"].items()))


def _drop(section: Any, is_wrong: Any) -> None:
    for name in [name for name, value in (section or {}).items() if is_wrong(name, value)]:
        del section[name]


def _mend_hosts(hosts: Iterable[tuple[Any, Any]]) -> Iterable[tuple[Any, Any]]:
    for name, variables in hosts:
        if not isinstance(name, str):
            continue
        if isinstance(variables, Mapping):
            _drop(variables, lambda name, _: not isinstance(name, str))
        names: list[str] = [name]
        if ranges.correct_names(strip_tags(name)):
            names = ranges.correct_names(strip_tags(name))
        elif "[" in name:
            try:
                ranges.expand(name)
            except (AnsibleError, Unreadable, ValueError):
                names = [re.sub(r"[^\w.-]", "", strip_tags(name)) or "host"]
        yield from ((each, variables if isinstance(variables, Mapping) else None) for each in names)
