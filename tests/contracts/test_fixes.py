"""Fixes in messages work: each fix that is printed for a bad spec is applied, and the spec judged again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from gpuprov.fleet.specs import load_fleet
from gpuprov.spec.problem import Problem, SpecError, format_path
from tests.fleet.specs.test_bad_specs import HEAD, inventory, rows

_WRITE = re.compile(r"(?:\A|[;:] )write (?P<typed>.+?)(?: without quotes| \(YAML reads .*| \((?:the|a) .*)?\Z")
_QUOTED = re.compile(r'(?:quote it: |, or )"(?P<typed>[^"]+)"')
_NEAREST = re.compile(r'the nearest is "([^"]+)"')
_MEANT = re.compile(r'did you mean ((?:"[^"]+"(?:, )?)+)\?')


def problems(path: Path) -> list[Problem]:
    try:
        load_fleet([str(path)], cache=False)
    except SpecError as error:
        return error.problems
    return []


def offered(problem: Problem) -> Iterator[tuple[str, Any]]:
    """Yield the fixes in a message: "key" and another name, "block" and a block in place of a key, or "value" and
    another value."""
    unknown = problem.message.startswith("unknown key")
    last = format_path(problem.path[-1:])
    named = f"{last} is " in problem.message or f'{last} "' in problem.message
    kind = "value" if named and "the key " not in problem.message else "key"
    for names in _MEANT.findall(problem.fix):
        yield from ((kind, name) for name in re.findall(r'"([^"]+)"', names))
    yield from ((kind, typed) for typed in (*_QUOTED.findall(problem.fix), *_NEAREST.findall(problem.fix)))
    if (written := _WRITE.search(problem.fix)) and not written["typed"].startswith(("{} for", "it ", "the ")):
        blocks = re.split(r"(?: \([^)]*\))? or ", written["typed"]) if unknown else [written["typed"]]
        yield from (("block" if unknown else "value", yaml.safe_load(block)) for block in blocks)


def typed(spec: Any, path: tuple[Any, ...], kind: str, fix: Any) -> Any:
    """Return the spec with the fix in place of the refused part."""
    first, *rest = path
    if isinstance(spec, list):
        return [
            (typed(item, tuple(rest), kind, fix) if rest else fix) if n == first else item
            for n, item in enumerate(spec)
        ]
    if rest:
        return {
            key: typed(item, tuple(rest), kind, fix) if str(key) == str(first) else item for key, item in spec.items()
        }
    others = {key: item for key, item in spec.items() if str(key) != str(first)}
    value = next((item for key, item in spec.items() if str(key) == str(first)), None)
    return {**others, **({first: fix} if kind == "value" else {fix: value} if kind == "key" else fix)}


def place(problem: Problem, kind: str, fix: Any) -> tuple[Any, ...]:
    """Return the path of the applied fix."""
    if kind == "block":
        inner = problem.fix.startswith(("it is a field of", "write")) and len(problem.path) > 1
        return (*problem.path[:-1], *fix) if inner else tuple(fix)
    return problem.path if kind == "value" else (*problem.path[:-1], fix)


def test_each_printed_fix_is_taken(tmp_path: Path) -> None:
    tried = 0
    for name, spec, told in rows():
        if not re.search("write |quote it|did you mean|nearest", str(told)):
            continue
        for problem in problems(inventory(tmp_path, spec)):
            for kind, fix in offered(problem):
                tried += 1
                whole = yaml.safe_load(HEAD)
                whole["all"]["vars"]["gpuprov"] = typed(yaml.safe_load(spec), problem.path, kind, fix)
                path = tmp_path / "inventory.yaml"
                path.write_text(yaml.safe_dump(whole), encoding="utf-8")
                again = [str(other) for other in problems(path) if other.path == place(problem, kind, fix)]
                assert not again, f"{name}: {problem.fix}: {fix!r}: {again}"
    assert tried > 60
