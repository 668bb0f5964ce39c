"""Suggests a value in place of one that a field refuses. A fix is offered only if the field accepts it."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import inspect as shape

from gpuprov.core.safe_parse import parse_whole
from gpuprov.core.sanitize import is_hidden
from gpuprov.spec.kinds import is_accepted, is_fitting, list_members, unwrap
from gpuprov.spec.text_fixes import Fix, Unknown, find_count, find_measure, fix_text, format_as_typed, is_narrow
from gpuprov.spec.words import BOOLEANS, GONE, OFF, ON, REMOVES, SWITCHES, THERE, YAML_BOOLEANS

_NUMBER = re.compile(r"(-?[0-9]{1,15})(?: ?(W|MHz))?", re.IGNORECASE)
_FROM_TO = re.compile(r"\[?([0-9]{1,2})(?:-|:|\.\.)([0-9]{1,2})\]?")
_INSTANCES = re.compile(r"(?:([0-9]{1,2}) ?[x*×] ?)?([0-9a-z.+]*[a-z][0-9a-z.+]*)(?: ?[x*×:=] ?([0-9]{1,2}))?")
# A model with its count behind or before it: H100:8, 8x H100.
_COUNTED = re.compile(r"([A-Za-z][\w. -]*?) ?[:x*×] ?([0-9]{1,2})|([0-9]{1,2}) ?[x*×] ?([A-Za-z].*)")
_SPLIT = re.compile(r"[,\s]+")
_AROUND = re.compile(r"\s*=\s*|:\s+")
# In the description of a text that may be empty: a parameter without a value.
_SHORT_WORD = '("" for a bare word)'
_UNSPACED = re.compile(r"(\w+):(\S.*)")
# Keys of a mapping, of which one is an example for all.
MOST_KEYS = 3


def fix_for(value: object, kind: shape.Type) -> Fix | None:
    """Return the likely intended value, in a form that a field of this type accepts; None if it is unknown."""
    if value is None or is_hidden(str(value)) or _is_gone(value, kind):
        return None
    if isinstance(value, str) and (fix := fix_number(value, kind)):
        return fix
    if isinstance(value, str | list) and "how many" in describe(kind) and (fix := fix_counts(value)):
        return fix
    if isinstance(value, bool) and {shape.IntType, shape.StrType} <= {type(member) for member in list_members(kind)}:
        return Fix(int(value), f"write {int(value)}{YAML_BOOLEANS}")
    return next((fix for member in list_members(kind) for fix in fix_for_member(value, member)), None)


def describe(kind: shape.Type) -> str:
    """Return the description of a field; empty if it has none."""
    return str((kind.extra_json_schema or {}).get("description", "")) if isinstance(kind, shape.Metadata) else ""


def fix_number(value: str, kind: shape.Type) -> Fix | None:
    """Return the number that a text with a unit means, or a count: 64G, 400Gb/s, 8x."""
    number = find_measure(value, describe(kind))
    for member in list_members(kind):
        typed = str(number) if isinstance(member, shape.StrType) and is_narrow(member) else number
        numeric = isinstance(member, shape.IntType | shape.FloatType)
        if number is not None and (numeric or typed != number) and is_fitting(typed, member):
            return Fix(typed, f"write {format_as_typed(typed)} (the unit is known)")
        count = find_count(value) if isinstance(member, shape.IntType) else None
        if count is not None and is_fitting(count, member):
            return Fix(count, f"write {count}")
    return None


def fix_counts(value: str | list[object]) -> Fix | None:
    """Return a mapping of names to numbers for names with a count, or none, in a text or a list."""
    parts = re.split(r"\s*[,;+]\s+|\s*,\s*", value.strip()) if isinstance(value, str) else value
    made: dict[str, int] = {}
    for part in parts:
        seen = _INSTANCES.fullmatch(part.strip()) if isinstance(part, str) else None
        if not seen:
            return None
        made[seen[2]] = made.get(seen[2], 0) + int(seen[1] or seen[3] or 1)
    return Fix(made, f"write {format_as_typed(made)} (the number on each)")


def _is_gone(value: object, kind: shape.Type) -> bool:
    return value in GONE and any(isinstance(unwrap(member), shape.StructType) for member in list_members(kind))


def explain(value: object, kind: shape.Type) -> str:
    """Return what to type instead, to follow the allowed values; empty if there is no suggestion."""
    if fix := fix_for(value, kind):
        return f"; {fix.words}"
    if _is_gone(value, kind):
        return f"; {REMOVES}"
    blocks = [member for member in list_members(kind) if isinstance(member, shape.StructType)]
    if isinstance(value, str) and value.casefold() in ("false", *OFF) and blocks:
        return "; write false to switch it off, {} for the defaults"
    if value in (True, None) and _SHORT_WORD in describe(kind):
        return '; write ""'
    words = any(isinstance(member, shape.LiteralType | shape.StrType) for member in list_members(kind))
    return YAML_BOOLEANS if isinstance(value, bool) and words else ""


def fix_for_member(value: object, kind: shape.Type) -> Iterator[Fix]:
    if isinstance(kind, shape.StrType | shape.LiteralType):
        yield from fix_text(value, kind)
    elif isinstance(kind, shape.IntType):
        number = _NUMBER.fullmatch(value.strip()) if isinstance(value, str) else None
        if isinstance(value, bool | float) and float(value).is_integer() and (isinstance(value, float) or kind.le == 1):
            yield from (Fix(n, f"write {n}") for n in [int(value)] if is_fitting(n, kind))
        if number and is_fitting(whole := int(number[1]), kind):
            yield Fix(whole, f"write {whole}" + (" (the unit is known)" if number[2] else " without quotes"))
    elif isinstance(kind, shape.BoolType):
        meaning = SWITCHES.get(value.strip().casefold()) if isinstance(value, str) else None
        meaning = bool(value) if isinstance(value, int) and value in (0, 1) else meaning
        if isinstance(value, Mapping):
            yield Fix(True, "write true")
        if meaning is not None:
            yield Fix(
                meaning,
                f"write {format_as_typed(meaning)}"
                + (" without quotes" if str(value).casefold() in BOOLEANS and isinstance(value, str) else ""),
            )
    elif isinstance(kind, shape.VarTupleType | shape.ListType):
        yield from fix_list(value, kind)
    elif isinstance(kind, shape.StructType):
        yield from fix_block(value, kind)
    elif isinstance(kind, shape.DictType):
        yield from fix_mapping(value, kind)


def fix_mapping(value: object, kind: shape.DictType) -> Iterator[Fix]:
    """Yield a mapping for assignments in its place, in a text or a list; bare words get empty values."""
    key = unwrap(kind.key_type)
    if isinstance(value, str) and is_narrow(key) and is_fitting(value, key):
        yield Fix(Unknown, f"write it as a key: {{{format_as_typed(value)}: ...}}")
        return
    texts = value if isinstance(value, list) else [value]
    if isinstance(key, shape.LiteralType) and is_accepted(value, kind.value_type):
        example = format_as_typed(key.values[-1]) if len(key.values) <= MOST_KEYS else "KEY"
        yield Fix(Unknown, f"write it by key: {{{example}: {format_as_typed(value)}}}")
        return
    words = [word for text in texts if isinstance(text, str) for word in _AROUND.sub("=", text.strip()).split()]
    if is_narrow(key):
        words = [word if "=" in word else word.replace(":", "=", 1) for word in words]
    made: dict[object, object] = {}
    for name, _, text in (word.partition("=") for word in words):
        number = parse_whole(text)
        typed: object = number if number is not None and is_accepted(number, kind.value_type) else text
        if not is_fitting(name, key) or not is_accepted(typed, kind.value_type):
            return
        made[name] = typed
    if any("=" in word for word in words) and all(isinstance(text, str) for text in texts):
        yield Fix(made, f"write {format_as_typed(made)}")


def fix_list(value: object, kind: shape.VarTupleType | shape.ListType) -> Iterator[Fix]:
    if isinstance(value, Mapping):
        yield from _fix_entry(value, unwrap(kind.item_type))
        return
    if isinstance(value, list | tuple | bool) or isinstance(unwrap(kind.item_type), shape.AnyType):
        return  # rules alone know what may be in a list of anything
    if isinstance(value, int):
        if is_accepted(value, kind.item_type) and is_accepted(0, kind.item_type):  # an index, or a choice
            yield Fix([value], f"write [{value}]")
        return
    entry = unwrap(kind.item_type)
    if isinstance(entry, shape.StructType) and not any(
        is_narrow(field.type) and is_accepted(value, field.type) for field in entry.fields
    ):
        yield Fix(Unknown, f"as in [{_format_fields(entry)}]")
        return
    items: list[object] = [part for part in _SPLIT.split(value) if part] if isinstance(value, str) else [value]
    if is_accepted(0, kind.item_type):
        items = [number for item in items for number in expand_span(item)]
    if kind.min_length == 2 and isinstance(value, str):  # least and most
        items = [part for part in re.split(r"[-,\s]+", value) if part]
    numbers = [parse_whole(item) if isinstance(item, str) else None for item in items]
    items = [
        item if number is None or not is_accepted(number, kind.item_type) else number
        for item, number in zip(items, numbers, strict=True)
    ]
    made = [item if is_accepted(item, kind.item_type) else fix_for(item, kind.item_type) for item in items]
    if made and not any(item is None or _is_unknown(item) for item in made):
        plain = [item.value if isinstance(item, Fix) else item for item in made]
        yield Fix(plain, f"write {format_as_typed(plain)}")


def expand_span(item: object) -> list[object]:
    """Return the numbers of a range: 0-7, [0:3]; anything else alone."""
    span = _FROM_TO.fullmatch(str(item))
    return [*range(int(span[1]), int(span[2]) + 1)] if span else [item]


def _fix_entry(value: Mapping[str, object], kind: shape.Type) -> Iterator[Fix]:
    """Yield a list for a mapping in its place: one entry without its dash, entries by a name, or its keys."""
    if isinstance(kind, shape.StructType):
        needed = [field.encode_name for field in kind.fields if field.required]
        if {*needed} <= {*value} <= {field.encode_name for field in kind.fields}:
            yield Fix([value], f"write {format_as_typed([value])}")
        else:
            yield Fix(Unknown, f"as in [{_format_fields(kind)}]")
    elif value and all(is_accepted(key, kind) for key in value):
        yield Fix([*value], f"write {format_as_typed([*value])}")


def _format_fields(kind: shape.StructType) -> str:
    """Return the form of a block: its required fields, then others, three at most."""
    fields = sorted(kind.fields, key=lambda field: not field.required)
    return "{" + ", ".join(f"{field.encode_name}: ..." for field in fields[:3]) + "}"


def fix_block(value: object, kind: shape.StructType) -> Iterator[Fix]:
    """Yield a block with a field that accepts the value written in the block's place."""
    if isinstance(value, Mapping):
        return
    if isinstance(value, list | tuple):
        yield from fix_listed_block(value, kind)
        return
    needed = [field.encode_name for field in kind.fields if field.required]
    names = {field.encode_name: field.type for field in kind.fields}
    if value == "{}" and not needed:
        yield Fix({}, "write {} without quotes")
    if value in (True, "true") and not needed:
        yield from fix_true(kind)
    if isinstance(value, bool):
        return
    if isinstance(value, str) and value.casefold() in (*THERE, *OFF):
        yield from _fix_switched_block(value, kind)
        return
    if isinstance(value, str) and (unspaced := _UNSPACED.fullmatch(value)) and unspaced[1] in names:
        name, text = unspaced.groups()
        shown = format_as_typed(text) if is_accepted(text, names[name]) else text
        yield Fix(Unknown, f"put a space after the colon: {name}: {shown}")
        return
    if isinstance(value, str) and (counted := _COUNTED.fullmatch(value)) and {"model", "count"} <= set(names):
        made = {"model": counted[1] or counted[4], "count": int(counted[2] or counted[3])}
        yield Fix(made, f"write {format_as_typed(made)}")
        return
    yield from fix_numbers(value, kind)
    yield from fix_single_field(value, kind)


def fix_true(kind: shape.StructType) -> Iterator[Fix]:
    """Yield a block for the word true in its place: an empty one, unless that would request nothing."""
    fields = {field.encode_name: field.type for field in kind.fields}
    one_of = [name for name in getattr(kind.cls, "ONE_OF", ()) if name in fields]
    if one_of:
        yield Fix(Unknown, "give it " + " or ".join(one_of))
    else:
        yield Fix({}, "write {} for the defaults")


def fix_numbers(value: object, kind: shape.StructType) -> Iterator[Fix]:
    """Yield a block for its numbers in the order of its fields, as nvidia-smi takes them: 2619,1980."""
    needed = [field for field in kind.fields if field.required]
    numbers = [parse_whole(part) for part in _SPLIT.split(value)] if isinstance(value, str) else []
    if len(needed) > 1 and len(numbers) == len(needed) and None not in numbers:
        made = {field.encode_name: number for field, number in zip(needed, numbers, strict=True)}
        if all(is_accepted(made[field.encode_name], field.type) for field in needed):
            yield Fix(made, f"write {format_as_typed(made)}")


def fix_single_field(value: object, kind: shape.StructType) -> Iterator[Fix]:
    """Yield a block with the field that accepts the value: the required one, or the first; of several others, none."""
    needed = [field.encode_name for field in kind.fields if field.required]
    made: dict[str, object] = {}
    for field in kind.fields:
        if needed and needed != [field.encode_name]:
            continue
        if not needed and not any(is_narrow(member) for member in list_members(field.type)):
            continue
        inner: Any = value if is_accepted(value, field.type) else fix_for(value, field.type)
        if inner is not None and not _is_unknown(inner):
            made[field.encode_name] = inner.value if isinstance(inner, Fix) else inner
    name = next(iter(made), "")
    same = sum(item == value for item in made.values())
    if same > 1 and made[name] == value and name != kind.fields[0].encode_name:
        yield Fix(Unknown, f"as in {_format_fields(kind)}")
    elif made:
        yield Fix({name: made[name]}, f"write {format_as_typed({name: made[name]})}")


def fix_listed_block(value: list[object] | tuple[object, ...], kind: shape.StructType) -> Iterator[Fix]:
    """Yield a block for a list in its place: the one entry, or a field that takes the list."""
    fields = {field.encode_name: field for field in kind.fields}
    needed = {name for name, field in fields.items() if field.required}
    first = value[0] if len(value) == 1 else None
    if isinstance(first, Mapping) and needed <= set(first) <= set(fields):
        yield Fix(dict(first), f"write {format_as_typed(first)}" if len(str(first)) < 60 else "take the dash out")
    elif len(needed) == 1 and value and not any(isinstance(item, Mapping) for item in value):
        (name,) = needed
        lists = [m for m in list_members(fields[name].type) if isinstance(m, shape.VarTupleType | shape.ListType)]
        if lists and all(is_accepted(item, lists[0].item_type) for item in value):
            yield Fix({name: [*value]}, f"write {format_as_typed({name: value})}")
    elif first is not None and not isinstance(first, list | tuple | Mapping):
        yield from fix_block(first, kind)


def _fix_switched_block(word: str, kind: shape.StructType) -> Iterator[Fix]:
    """Yield a block for on or off in its place: with a field that has this word, or with the defaults."""
    for field in kind.fields if word.casefold() in (*ON, *OFF) else ():
        if any(isinstance(member, shape.LiteralType) and word in member.values for member in list_members(field.type)):
            yield Fix({field.encode_name: word}, f"write {format_as_typed({field.encode_name: word})}")
    if word.casefold() in THERE and not any(field.required for field in kind.fields):
        yield Fix({}, "write {} for the defaults")


def _is_unknown(fix: object) -> bool:
    """True for a fix whose value only the user knows."""
    return isinstance(fix, Fix) and fix.value is Unknown
