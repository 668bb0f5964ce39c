"""Misplaced or misnamed blocks and fields of a spec."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from gpuprov.core.sanitize import counted, is_hidden
from gpuprov.spec.model import Fragment
from gpuprov.spec.problem import Path
from gpuprov.spec.text_fixes import format_as_typed
from gpuprov.spec.unknown_keys import Finding, report_unknown_key
from gpuprov.spec.words import find_example

MOST_OWNERS = 3


class Placed(NamedTuple):
    """The blocks as intended, the mistakes in how they were written, and the original paths of moved values."""

    values: dict[Any, object]
    findings: list[Finding]
    written: dict[Path, Path]


def place(values: Mapping[Any, object], fragments: Mapping[str, type[Fragment]], house: tuple[str, ...]) -> Placed:
    """Sort a host's `gpuprov` variable into blocks. `fragments`: the blocks of capabilities; `house`: all other
    keys."""
    names = [*house, *fragments]
    placed: dict[Any, object] = {}
    findings: list[Finding] = []
    written: dict[Path, Path] = {}
    outer = dict(find_outdented(values, fragments))
    for owner, keys in outer.items():
        findings.append(report_indentation(owner, keys))
        placed[owner] = {key: values[key] for key in keys}
        written |= {(owner, key): (key,) for key in keys}
    taken = {key for keys in outer.values() for key in keys}
    for key, value in values.items():
        if key in taken or key in outer:
            continue
        if key in names:
            placed[key] = value
            continue
        path, message, fix = report_unknown_key((), key, names)
        near = fix.removeprefix('did you mean "').removesuffix('"?')
        fix = suggest_place(str(key), value, fragments) or fix
        findings.append((path, message, fix))
        if near in fragments and near not in values and near in fix:
            placed[near], written[near,] = value, (str(key),)
    for name in [name for name in placed if name in fragments]:
        block = placed[name]
        others = [key for key in block if _is_other(key, name, fragments)] if isinstance(block, Mapping) else []
        for key in others:
            fix = f"it is a block of its own: write it beside {name}, with the same indentation"
            findings.append(((name, str(key)), f'"{key}" stands in {name}', fix))
            if key not in placed and isinstance(block, Mapping):
                placed[key], written[key,] = block[key], (name, key)
        if isinstance(block, Mapping):
            placed[name] = {key: value for key, value in block.items() if key not in others}
    return Placed(placed, findings, written)


def find_outdented(
    values: Mapping[Any, object], fragments: Mapping[str, type[Fragment]]
) -> Iterator[tuple[str, list[str]]]:
    """Yield blocks that are empty, and the keys after them that are their fields: they lack their indentation."""
    owner, keys = "", list[str]()
    for key, value in [*values.items(), ("", None)]:
        if owner and key not in fragments and key in fragments[owner].__struct_fields__:
            keys.append(key)
            continue
        if keys:
            yield owner, keys
        owner, keys = (key, []) if value is None and key in fragments else ("", [])


def report_indentation(owner: str, keys: list[str]) -> Finding:
    listing = ", ".join(keys)
    message = (
        f"{owner} is empty, and {counted(len(keys), 'field')} of it ({listing}) stand{'s' * (len(keys) == 1)} beside it"
    )
    return (owner,), message, f"indent {listing} by two more spaces than {owner}"


def suggest_place(key: str, value: object, fragments: Mapping[str, type[Fragment]]) -> str:
    """Return where to write a key that is not a block: in the block whose field it is, or under another name. Empty if
    unknown."""
    if example := find_example(key):
        return f"write {_insert_version(example, value)}"
    if isinstance(value, Mapping) and value and set(value) <= set(fragments):
        if list(value.values()) == [{}]:
            return f"blocks stand in no group: write {next(iter(value))}: {{}}"
        return f"blocks stand in no group: put {' and '.join(value)} in its place"
    owners = [name for name, fragment in fragments.items() if key in fragment.__struct_fields__]
    if not owners or len(owners) > MOST_OWNERS:
        return ""
    items = value if isinstance(value, list) else [value]
    plain = value == {} or all(isinstance(item, str | int | float) and not is_hidden(str(item)) for item in items)
    shown = format_as_typed(value) if plain and len(str(value)) <= 40 else "..."
    written = " or ".join(f"{name}: {{{key}: {shown}}}" for name in owners)
    return f"it is a field of {', '.join(owners)}: write {written}"


def _insert_version(example: str, value: object) -> str:
    """Return the example with the version that was written, if it looks like the example's."""
    value = value.get("version") if isinstance(value, Mapping) else value
    version = value if isinstance(value, str) else str(value) if type(value) in (int, float) else ""
    alike = {"580": r"[1-9][0-9]{2}(\.[0-9]+)*", "12.8": r"[1-9][0-9]\.[0-9]"}
    for shown, pattern in alike.items():
        if re.fullmatch(pattern, version):
            example = example.replace(f'"{shown}"', f'"{version}"')
    return example


def _is_other(key: object, name: str, fragments: Mapping[str, type[Fragment]]) -> bool:
    """True if a key of a block is the name of another block."""
    return key in fragments and key not in fragments[name].__struct_fields__
