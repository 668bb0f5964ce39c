"""Duplicate keys of a YAML file, told apart from a key that overrides one of a merge (`<<: *base`)."""

from __future__ import annotations

import re
from collections.abc import Iterator

import yaml

from gpuprov.spec.problem import Origin, Problem


def duplicates(file: str) -> Iterator[Problem]:
    """A problem for each key that is written twice in one mapping of the file, with the line of the first."""
    with open(file, encoding="utf-8", errors="replace") as text:
        content = text.read()
    if content.startswith("$ANSIBLE_VAULT"):
        yield Problem(message="a key is written twice in one mapping", origin=Origin(file), hint="remove one of them")
        return
    seen: set[int] = set()
    waiting: list[yaml.Node | None] = [yaml.compose(content, Loader=_loader())]
    while waiting:
        node = waiting.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
        elif isinstance(node, yaml.MappingNode):
            waiting += [value for _, value in node.value]
            yield from _twice(node, file)


def _twice(node: yaml.MappingNode, file: str) -> Iterator[Problem]:
    first: dict[tuple[str, str], int] = {}
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode) or re.fullmatch("<<", key.value):
            continue
        line = key.start_mark.line + 1
        if (key.tag, key.value) in first:
            message = f'"{key.value}" is written twice; the first is in line {first[key.tag, key.value]}'
            place = Origin(file, line, key.start_mark.column + 1)
            yield Problem(message=message, origin=place, hint="remove one of them")
        else:
            first[key.tag, key.value] = line


def _loader() -> type[yaml.SafeLoader] | type[yaml.CSafeLoader]:
    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)
