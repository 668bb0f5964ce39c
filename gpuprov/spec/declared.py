"""Blocks inside a block: one that is present was requested, even if empty."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import msgspec
from msgspec import inspect as shape

from gpuprov.host_code.json_members import Json
from gpuprov.spec.model import Fragment
from gpuprov.spec.problem import Path, format_path

# Value of a field that leaves the decision to gpuprov.
OPEN = "auto"


def complete(value: object, block: type[Fragment]) -> object:
    """Return a block's plain value, completed with what the blocks in it decide unless it sets that itself."""
    if not isinstance(value, Mapping):
        return value
    completed: dict[Any, Any] = {}
    for name, inner in value.items():
        kind = find_inner_block(block, name)
        completed[name] = (
            complete({**kind.WHEN_PRESENT, **inner}, kind) if kind and isinstance(inner, Mapping) else inner
        )
    for name, (field, meaning) in block.IMPLIES.items():
        if isinstance(value.get(name), Mapping) and completed.get(field, OPEN) == OPEN:
            completed[field] = meaning
    return completed


def find_undecided(value: object, block: type[Fragment], path: Path) -> Iterator[tuple[Path, str, str]]:
    """Yield blocks that are switched off and would have decided a field that nothing else sets: it would fall back to
    its default, another choice that nobody made. A default of `auto` is not a choice. Path, message, fix."""
    if not isinstance(value, Mapping):
        return
    defaults = _list_defaults(block) if block.IMPLIES else {}
    decided = {field for name, (field, _) in block.IMPLIES.items() if isinstance(value.get(name), Mapping)}
    for name, (field, meaning) in block.IMPLIES.items():
        default = defaults[field]
        if value.get(name) is False and field not in value and field not in decided and default not in (OPEN, meaning):
            message = (
                f"{format_path((*path, name))} is false, and nothing else says which {field}: what is left "
                f"would be {default}"
            )
            yield (
                (*path, name),
                message,
                f"{format_path(path)}: false for none of it, or {field}: {default} if that is meant",
            )
    for name, inner in value.items():
        if kind := find_inner_block(block, name):
            yield from find_undecided(inner, kind, (*path, name))


@cache
def _list_defaults(block: type[Fragment]) -> dict[str, Json]:
    return {field.encode_name: field.default for field in msgspec.structs.fields(block)}


def find_contradictions(value: object, block: type[Fragment], path: Path) -> Iterator[tuple[Path, str, str]]:
    """Yield blocks in a completed one that have no effect, or request nothing: path, message, fix."""
    if not isinstance(value, Mapping):
        return
    for name, (field, meaning) in block.IMPLIES.items():
        if (
            isinstance(value.get(name), Mapping)
            and (setting := value.get(field)) != meaning
            and isinstance(setting, str)
        ):
            message = f"{format_path((*path, name))} has no effect: {format_path((*path, field))} is {setting}"
            yield (*path, name), message, f"{field}: {meaning}, or leave it out {format_off(name)}"
    for name, inner in value.items():
        kind = find_inner_block(block, name)
        if kind and isinstance(inner, Mapping):
            if kind.ONE_OF and not set(kind.ONE_OF) & set(inner):
                fields = " or ".join(kind.ONE_OF)
                yield (
                    (*path, name),
                    f"{format_path((*path, name))} asks for nothing: it has no {fields}",
                    (f"give it {fields}, or leave it out {format_off(name)}"),
                )
            yield from find_contradictions(inner, kind, (*path, name))


def format_off(name: object) -> str:
    return f"({name}: false, where an outer group has it)"


def find_inner_block(block: type[Fragment], name: object) -> type[Fragment] | None:
    """Return the type of the block that a field holds; None for other fields."""
    return list_inner_blocks(block).get(str(name))


_known: dict[type[Fragment], dict[str, type[Fragment]]] = {}


def list_inner_blocks(block: type[Fragment]) -> dict[str, type[Fragment]]:
    """Return the blocks that a block may contain, by field."""
    if block not in _known:
        info = shape.type_info(block)
        assert isinstance(info, shape.StructType)
        _known[block] = {field.encode_name: kind for field in info.fields if (kind := find_block(field.type))}
    return _known[block]


def find_block(kind: shape.Type) -> type[Fragment] | None:
    bare = kind.type if isinstance(kind, shape.Metadata) else kind
    members = [find_block(member) for member in bare.types] if isinstance(bare, shape.UnionType) else []
    if isinstance(bare, shape.StructType) and issubclass(bare.cls, Fragment):
        return bare.cls
    return next(filter(None, members), None)
