"""Suggests a value in place of one that a field refuses. A fix is offered only if the field accepts it."""

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from msgspec import inspect as shape

from gpuprov.core.safe_parse import parse_whole
from gpuprov.core.sanitize import is_hidden
from gpuprov.spec.kinds import is_fitting, list_members, unwrap
from gpuprov.spec.words import BOOLEANS, GONE, OFF, ON, OTHER_WORDS, REMOVES, THERE, YAML_BOOLEANS

_NUMBER = re.compile(r"(-?[0-9]{1,15})(?: ?(W|MHz))?", re.IGNORECASE)
_FROM_TO = re.compile(r"([0-9]{1,2})-([0-9]{1,2})")
_COUNTED = re.compile(r"([A-Za-z][\w.-]*)[:x]([0-9]{1,2})")
_SPLIT = re.compile(r"[,\s]+")
_VERSION = re.compile(r"\d+(?:\.\d+)*")
_AROUND = re.compile(r"\s*=\s*|:\s+")
_UNSPACED = re.compile(r"(\w+):(\S.*)")
MOST_KEYS = 3
"""Keys of a mapping, of which one is an example for all."""
ANY = "any"
"""The word for any version, by which a field for versions is known."""
QUOTES = "\"'\u201c\u201d\u2018\u2019"
"""Plain and typographic quotes."""


class Unknown:
    """The value of a fix that only the user knows: YAML read something else than what was written."""


class Fix(NamedTuple):
    """A value that the field accepts, and the words that suggest it."""

    value: object
    words: str


def fix_for(value: object, kind: shape.Type) -> Fix | None:
    """Return the likely intended value, in a form that a field of this type accepts; None if it is unknown."""
    if value is None or is_hidden(str(value)) or _is_gone(value, kind):
        return None
    return next((fix for member in list_members(kind) for fix in fix_for_member(value, member)), None)


def _is_gone(value: object, kind: shape.Type) -> bool:
    return value in GONE and any(isinstance(unwrap(member), shape.StructType) for member in list_members(kind))


def explain(value: object, kind: shape.Type) -> str:
    """Return what to type instead, to follow the allowed values; empty if there is no suggestion."""
    if fix := fix_for(value, kind):
        return f"; {fix.words}"
    if _is_gone(value, kind):
        return f"; {REMOVES}"
    words = any(isinstance(member, shape.LiteralType | shape.StrType) for member in list_members(kind))
    return YAML_BOOLEANS if isinstance(value, bool) and words else ""


def format_as_typed(value: object) -> str:
    """Return a value as it is typed in YAML, on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {format_as_typed(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(format_as_typed, value))}]"
    if isinstance(value, str):
        plain = re.fullmatch(r"[A-Za-z](?:[\w.-]*\w)?", value) and value.casefold() not in {*BOOLEANS, "null", "y", "n"}
        return value if plain else json.dumps(value, ensure_ascii=False)
    return json.dumps(value)


def fix_for_member(value: object, kind: shape.Type) -> Iterator[Fix]:
    if isinstance(kind, shape.StrType | shape.LiteralType):
        yield from fix_text(value, kind)
    elif isinstance(kind, shape.IntType):
        number = _NUMBER.fullmatch(value.strip()) if isinstance(value, str) else None
        if number and is_fitting(whole := int(number[1]), kind):
            yield Fix(whole, f"write {whole}" + (" (the unit is known)" if number[2] else " without quotes"))
    elif isinstance(kind, shape.BoolType):
        meaning = BOOLEANS.get(value.strip().casefold()) if isinstance(value, str) else None
        meaning = bool(value) if isinstance(value, int) and value in (0, 1) else meaning
        if isinstance(value, Mapping):
            yield Fix(True, "write true")
        if meaning is not None:
            yield Fix(
                meaning, f"write {format_as_typed(meaning)}" + (" without quotes" if isinstance(value, str) else "")
            )
    elif isinstance(kind, shape.VarTupleType | shape.ListType):
        yield from fix_list(value, kind)
    elif isinstance(kind, shape.StructType):
        yield from fix_block(value, kind)
    elif isinstance(kind, shape.DictType):
        yield from fix_mapping(value, kind)


def fix_mapping(value: object, kind: shape.DictType) -> Iterator[Fix]:
    """Yield a mapping for assignments in its place, in a text or a list, with bare words where it takes empty values."""
    key = unwrap(kind.key_type)
    if isinstance(value, str) and _narrow(key) and is_fitting(value, key):
        yield Fix(Unknown, f"write it as a key: {{{format_as_typed(value)}: ...}}")
        return
    texts = value if isinstance(value, list) else [value]
    if isinstance(key, shape.LiteralType) and is_accepted(value, kind.value_type):
        example = format_as_typed(key.values[-1]) if len(key.values) <= MOST_KEYS else "KEY"
        yield Fix(Unknown, f"write it by key: {{{example}: {format_as_typed(value)}}}")
        return
    words = [word for text in texts if isinstance(text, str) for word in _AROUND.sub("=", text.strip()).split()]
    if isinstance(key, shape.LiteralType):
        words = [word.replace(":", "=", 1) for word in words]
    made: dict[object, object] = {}
    for name, _, text in (word.partition("=") for word in words):
        number = parse_whole(text)
        typed: object = number if number is not None and is_accepted(number, kind.value_type) else text
        if not is_fitting(name, key) or not is_accepted(typed, kind.value_type):
            return
        made[name] = typed
    if any("=" in word for word in words) and all(isinstance(text, str) for text in texts):
        yield Fix(made, f"write {format_as_typed(made)}")


def fix_text(value: object, kind: shape.StrType | shape.LiteralType) -> Iterator[Fix]:
    if isinstance(value, bool):
        for word in ON if value else OFF:
            if _narrow(kind) and is_fitting(word, kind):
                advice = f'quote it: "{word}"' if word in BOOLEANS else f"write {word}"
                yield Fix(word, advice + YAML_BOOLEANS)
    elif value == -1 and _narrow(kind) and is_fitting("unlimited", kind):  # as in limits.conf(5)
        yield Fix("unlimited", "write unlimited")
    elif isinstance(value, int) and value > 0 and is_octal(kind):
        texts = [text for text in (str(value), f"{value:04o}") if is_fitting(text, kind)]
        if texts:
            reason = f"; where 0{value:o} was written, YAML read octal digits" if len(texts) > 1 else ""
            yield Fix(texts[0], f"quote it: {' or '.join(map(format_as_typed, texts))}{reason}")
    elif isinstance(value, int) and is_fitting(str(value), kind):
        yield Fix(str(value), f'quote it: "{value}"')
    elif isinstance(value, float):
        yield from fix_fraction(value, kind)
    elif isinstance(value, str) and isinstance(kind, shape.LiteralType):
        yield from fix_choice(value, [choice for choice in kind.values if isinstance(choice, str)])
    elif isinstance(value, str) and isinstance(kind, shape.StrType) and _narrow(kind):
        yield from fix_pattern(value, kind)


def fix_pattern(value: str, kind: shape.StrType) -> Iterator[Fix]:
    """Yield the text without quotes inside it, another tool's word, or the one version in a text for a version."""
    bare = value.strip(" \t" + QUOTES)
    if bare != value and is_fitting(bare, kind):
        yield Fix(bare, f'write "{bare}"')
    elif is_fitting(other := OTHER_WORDS.get(value.casefold(), ""), kind) and other:
        yield Fix(other, f"write {other}")
    elif is_fitting(ANY, kind):
        if value.casefold() in ("latest", "newest", "*"):
            yield Fix(ANY, f"write {ANY}")
        versions = [part for part in _VERSION.findall(value) if is_fitting(part, kind)]
        if len(versions) == 1:
            yield Fix(versions[0], f'write "{versions[0]}"')


def fix_choice(value: str, choices: list[str]) -> Iterator[Fix]:
    """Yield the one choice that a misspelled word resembles; a path resembles none."""
    if "/" in value:
        return
    meaning = BOOLEANS.get(value.casefold())
    if meaning is not None and (words := [word for word in (ON if meaning else OFF) if word in choices]):
        yield Fix(words[0], f"write {words[0]}")
    squeezed = {re.sub(r"[^a-z0-9]", "", choice.casefold()): choice for choice in choices}
    word = re.sub(r"[^a-z0-9]", "", value.casefold())
    if (other := OTHER_WORDS.get(word, "")) in choices:
        yield Fix(other, f"write {other}")
    near = difflib.get_close_matches(word, squeezed, n=2, cutoff=0.8)
    if len(near) == 1 and sum(word in choice for choice in squeezed) < 2:
        yield Fix(squeezed[near[0]], f'did you mean "{squeezed[near[0]]}"?')


def is_octal(kind: shape.StrType | shape.LiteralType) -> bool:
    """Return whether a text is a file's mode: it takes octal digits and no others."""
    return is_fitting("0777", kind) and not is_fitting("0999", kind)


def fix_fraction(value: float, kind: shape.StrType | shape.LiteralType) -> Iterator[Fix]:
    """Yield a fix for an unquoted version: YAML read a number, and lost a trailing zero."""
    texts = [text for text in (f"{value}", f"{value}0") if is_fitting(text, kind)]
    if texts and not _narrow(kind):
        yield Fix(Unknown, "quote it as it was written: YAML read a number")
    elif texts:
        lost = len(texts) > 1 and re.search(r"\.\d\Z", texts[0])
        more = f', or "{texts[1]}" if that was written: YAML drops a zero at the end of a number' if lost else ""
        yield Fix(texts[0], f'quote it: "{texts[0]}"{more}')
    elif value.is_integer() and is_fitting(f"{value:.0f}", kind):
        yield Fix(f"{value:.0f}", f'write "{value:.0f}"')


def fix_list(value: object, kind: shape.VarTupleType | shape.ListType) -> Iterator[Fix]:
    if isinstance(value, Mapping):
        yield from _fix_entry(value, unwrap(kind.item_type))
        return
    if isinstance(value, list | tuple | bool):
        return
    if isinstance(value, int) or isinstance(unwrap(kind.item_type), shape.AnyType):
        return  # a number is hardly a name, and rules alone know what may be in such a list
    entry = unwrap(kind.item_type)
    if isinstance(entry, shape.StructType) and not any(
        _narrow(field.type) and is_accepted(value, field.type) for field in entry.fields
    ):
        yield Fix(Unknown, f"as in [{_format_fields(entry)}]")
        return
    items: list[object] = [part for part in _SPLIT.split(value) if part] if isinstance(value, str) else [value]
    if (span := _FROM_TO.fullmatch(str(value))) and is_accepted(0, kind.item_type):
        items = [*range(int(span[1]), int(span[2]) + 1)]
    made = [item if is_accepted(item, kind.item_type) else fix_for(item, kind.item_type) for item in items]
    if made and not any(item is None or _is_unknown(item) for item in made):
        plain = [item.value if isinstance(item, Fix) else item for item in made]
        yield Fix(plain, f"write {format_as_typed(plain)}")


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
    if isinstance(value, Mapping | list | tuple):
        return
    needed = [field.encode_name for field in kind.fields if field.required]
    names = {field.encode_name: field.type for field in kind.fields}
    if value == "{}" and not needed:
        yield Fix({}, "write {} without quotes")
    if value is True and not needed:
        yield Fix({}, "write {} for the defaults")
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
        made = {"model": counted[1], "count": int(counted[2])}
        yield Fix(made, f"write {format_as_typed(made)}")
        return
    for field in kind.fields:
        if needed and needed != [field.encode_name]:
            continue
        if not needed and not any(_narrow(member) for member in list_members(field.type)):
            continue
        inner: Any = value if is_accepted(value, field.type) else fix_for(value, field.type)
        if inner is not None and not _is_unknown(inner):
            made = {field.encode_name: inner.value if isinstance(inner, Fix) else inner}
            yield Fix(made, f"write {format_as_typed(made)}")


def _fix_switched_block(word: str, kind: shape.StructType) -> Iterator[Fix]:
    """Yield a block of somebody who wrote on or off in its place: with a field that has this word, or with the defaults."""
    for field in kind.fields if word.casefold() in (*ON, *OFF) else ():
        if any(isinstance(member, shape.LiteralType) and word in member.values for member in list_members(field.type)):
            yield Fix({field.encode_name: word}, f"write {format_as_typed({field.encode_name: word})}")
    if word.casefold() in THERE and not any(field.required for field in kind.fields):
        yield Fix({}, "write {} for the defaults")


def _is_unknown(fix: object) -> bool:
    """True for a fix whose value only the user knows."""
    return isinstance(fix, Fix) and fix.value is Unknown


def is_accepted(value: object, kind: shape.Type) -> bool:
    return any(
        is_fitting(value, member)
        for member in list_members(kind)
        if not isinstance(member, shape.StructType | shape.DictType)
    )


def _narrow(kind: shape.Type) -> bool:
    """True if the type of a field is so specific that its value identifies the field."""
    if isinstance(kind, shape.VarTupleType | shape.ListType):
        return any(map(_narrow, list_members(kind.item_type)))
    return isinstance(kind, shape.LiteralType) or (isinstance(kind, shape.StrType) and bool(kind.pattern))
