"""Ansible's warnings: duplicate keys of a YAML file, distinguished from keys that override those of a merge (`<<:
*base`)."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from gpuprov.inventory.origin import find_origin
from gpuprov.inventory.quiet import Heard
from gpuprov.inventory.sources import show_path
from gpuprov.spec.problem import Origin, Problem


def split_messages(heard: Heard, patched: Mapping[str, str]) -> tuple[list[Problem], list[Problem]]:
    """Split Ansible's messages into problems and warnings: duplicate keys are problems. `patched`: texts that were read
    in place of files with mistakes."""
    problems: list[Problem] = []
    warnings: list[Problem] = []
    files: dict[str, None] = {}
    for message, obj in heard.warnings:
        if message.startswith("Found duplicate mapping key"):
            place = find_origin(obj)
            if place is not None:
                files[place.file] = None
        elif message.startswith("Found both group and host with same name"):
            name = message.rpartition(":")[2].strip()
            warnings.append(Problem(message=f'"{name}" is a group and a host', severity="warning"))
    texts = {show_path(path): text for path, text in patched.items()}
    for file in files:
        problems += find_duplicates(file, texts.get(file))
    return problems, warnings


def find_duplicates(file: str, patched: str | None) -> Iterator[Problem]:
    """Yield a problem for each key that is written twice in one mapping of the file, with the line of the first."""
    content = Path(file).read_text(encoding="utf-8", errors="replace") if patched is None else patched
    if content.startswith("$ANSIBLE_VAULT"):
        yield Problem(message="a key is written twice in one mapping", origin=Origin(file), fix="remove one of them")
        return
    seen: set[int] = set()
    try:
        waiting: list[yaml.Node | None] = [yaml.compose(content, Loader=make_loader())]
    except yaml.YAMLError:  # the file is refused for that
        return
    while waiting:
        node = waiting.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
        elif isinstance(node, yaml.MappingNode):
            waiting += [value for _, value in node.value]
            yield from find_twice(node, file)


def find_twice(node: yaml.MappingNode, file: str) -> Iterator[Problem]:
    first: dict[tuple[str, str], int] = {}
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode) or re.fullmatch("<<", key.value):
            continue
        line = key.start_mark.line + 1
        if (key.tag, key.value) in first:
            message = f'"{key.value}" is written twice; the first is in line {first[key.tag, key.value]}'
            place = Origin(file, line, key.start_mark.column + 1)
            yield Problem(message=message, origin=place, fix="remove one of them")
        else:
            first[key.tag, key.value] = line


def make_loader() -> type[yaml.SafeLoader] | type[yaml.CSafeLoader]:
    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)
