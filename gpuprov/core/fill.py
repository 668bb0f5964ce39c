"""A struct made from another object's fields."""

from typing import TypeVar

import msgspec

Part = TypeVar("Part", bound=msgspec.Struct)


def fill(kind: type[Part], source: object, **own: object) -> Part:
    """Make a struct: `own`, and the other fields from those of the same names in the source."""
    names = (name for name in kind.__struct_fields__ if name not in own and hasattr(source, name))
    return kind(**{name: getattr(source, name) for name in names} | own)
