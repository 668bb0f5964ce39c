"""A YAML document with the place of each of its values, for messages about files that are not inventory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuprov.core.safe_parse.documents import parse_yaml
from gpuprov.core.safe_parse.limits import HOST_TEXT, Unreadable

if TYPE_CHECKING:
    from yaml import Node

Path = tuple[str | int, ...]
# Line and column, from 1.
Place = tuple[int, int]


def parse_placed_yaml(text: str | bytes, largest: int = HOST_TEXT) -> tuple[Any, dict[Path, Place]]:
    """The document, and where each key and item stands. Raises Unreadable, also for a key that is written twice in one
    mapping."""
    import yaml as reader  # 10 ms

    value = parse_yaml(text, largest)
    loader: Any = getattr(reader, "CSafeLoader", reader.SafeLoader)
    plain = text if isinstance(text, str) else text.decode(errors="replace")
    places: dict[Path, Place] = {}
    waiting: list[tuple[Path, Node | None]] = [((), reader.compose(plain, Loader=loader))]
    while waiting:
        path, node = waiting.pop()
        if isinstance(node, reader.MappingNode):
            for key, item in node.value:
                here = (*path, str(key.value))
                place = (key.start_mark.line + 1, key.start_mark.column + 1)
                if here in places:
                    raise Unreadable(
                        f'"{key.value}" is written twice; the first is in line {places[here][0]}', "", *place
                    )
                places[here] = place
                waiting.append((here, item))
        elif isinstance(node, reader.SequenceNode):
            for number, item in enumerate(node.value):
                places[*path, number] = (item.start_mark.line + 1, item.start_mark.column + 1)
                waiting.append(((*path, number), item))
    return value, places
