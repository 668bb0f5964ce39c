"""Findings of `gpuprov check` for code review: SARIF 2.1.0, and GitHub's workflow commands.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands
"""

import json
from collections.abc import Sequence
from pathlib import PurePath
from urllib.parse import quote

from gpuprov import __version__
from gpuprov.core.sanitize import cleaned
from gpuprov.host_code.json_members import Json
from gpuprov.spec.problem import Origin, Problem

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
# The rule of problems that concern no block of a spec.
INVENTORY = "inventory"


def as_sarif(problems: Sequence[Problem]) -> str:
    """Return one run of SARIF; a result for each problem, with its place."""
    rules = list(dict.fromkeys(map(_find_rule, problems)))
    driver = {"name": "gpuprov", "version": __version__, "rules": [{"id": rule} for rule in rules]}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_make_result(problem, rules) for problem in problems],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False)


def _find_rule(problem: Problem) -> str:
    return str(problem.path[0]) if problem.path else INVENTORY


def _make_result(problem: Problem, rules: Sequence[str]) -> dict[str, Json]:
    rule = _find_rule(problem)
    entry: dict[str, Json] = {
        "ruleId": rule,
        "ruleIndex": rules.index(rule),
        "level": problem.severity,
        "message": {"text": _format_text(problem)},
    }
    return {**entry, "locations": [{"physicalLocation": _make_location(problem.origin)}]} if problem.origin else entry


def _make_location(origin: Origin) -> dict[str, Json]:
    path = PurePath(origin.file)
    uri = path.as_uri() if path.is_absolute() else quote(path.as_posix())
    region = {"region": {"startLine": origin.line, "startColumn": max(origin.column, 1)}} if origin.line else {}
    return {"artifactLocation": {"uri": uri}, **region}


def as_github(problem: Problem) -> str:
    """Return a workflow command without its leading `::`, in one line: GitHub shows it at the problem's place."""
    origin = problem.origin
    properties = {"title": f"gpuprov check: {_find_rule(problem)}"}
    if origin:
        place = {"line": str(origin.line), "col": str(max(origin.column, 1))} if origin.line else {}
        properties = {"file": origin.file, **place, **properties}
    attributes = ",".join(f"{name}={_escape_text(cleaned(value), ':,')}" for name, value in properties.items())
    return f"{problem.severity} {attributes}::{_escape_text(_format_text(problem))}"


def _escape_text(text: str, more: str = "") -> str:
    """Escape text as @actions/core does."""
    # https://github.com/actions/toolkit/blob/main/packages/core/src/command.ts
    for character in f"%\r\n{more}":
        text = text.replace(character, f"%{ord(character):02X}")
    return text


def _format_text(problem: Problem) -> str:
    hosts = (
        f" ({problem.hosts[0]}{' ...' if problem.hosts[1:] else ''})" if problem.hosts and not problem.origin else ""
    )
    return cleaned(f"{problem.message}{f'; {problem.fix}' if problem.fix else ''}{hosts}")
