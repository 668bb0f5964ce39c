"""Corrections of values in a spec that need the text: as a person may have meant them, and numbers with units."""

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from msgspec import inspect as shape

from gpuprov.core.safe_parse import parse_whole
from gpuprov.spec.kinds import is_fitting, list_members
from gpuprov.spec.words import BOOLEANS, OFF, ON, OTHER_WORDS, YAML_BOOLEANS

TextKind = shape.StrType | shape.LiteralType
# The word for any version.
ANY = "any"
# A field for versions accepts one of the former, and none of the latter.
VERSIONS, NO_VERSIONS = (ANY, "9.5.1"), ("eth0", "/", "::1")
# Plain and typographic quotes.
QUOTES = "\"'\u201c\u201d\u2018\u2019"
# Words that turn the meaning of those beside them.
NOT = ("no", "non", "not", "un", "without")
_VERSION = re.compile(r"\d+(?:\.\d+)*")
_IN_A_PACKAGE = re.compile(r"[a-z].*[a-z]-([0-9]+)-([0-9]+)")


class Unknown:
    """The value of a fix that only the user knows: YAML read something else than what was written."""


class Fix(NamedTuple):
    """A value that the field accepts, and the words that suggest it."""

    value: object
    words: str


def fix_text(value: object, kind: TextKind) -> Iterator[Fix]:
    if isinstance(value, bool):
        yield from fix_switch(value, kind)
    elif value == -1 and is_narrow(kind) and is_fitting("unlimited", kind):  # as in limits.conf(5)
        yield Fix("unlimited", "write unlimited")
    elif isinstance(value, int) and value > 0 and is_octal(kind):
        texts = [text for text in (str(value), f"{value:04o}") if is_fitting(text, kind)]
        if texts:
            reason = f"; where 0{value:o} was written, YAML read octal digits" if len(texts) > 1 else ""
            yield Fix(texts[0], f"quote it: {' or '.join(map(format_as_typed, texts))}{reason}")
    elif isinstance(value, int) and is_fitting(str(value), kind):
        yield Fix(str(value), f'quote it: "{value}"')
    elif isinstance(value, int) and isinstance(kind, shape.LiteralType):
        words = [word for word in (ON if value else OFF) if value in (0, 1)] + [f"v{value}"]
        yield from (Fix(word, f"write {word}") for word in words if word in kind.values)
    elif isinstance(value, float):
        yield from fix_fraction(value, kind)
    elif isinstance(value, str) and isinstance(kind, shape.LiteralType):
        yield from fix_choice(value, [choice for choice in kind.values if isinstance(choice, str) and choice])
    elif isinstance(value, str) and isinstance(kind, shape.StrType) and is_narrow(kind):
        yield from fix_pattern(value, kind)


def fix_switch(value: bool, kind: TextKind) -> Iterator[Fix]:
    """Yield the word for true or false; the quoted text where any word is accepted, as in a label."""
    text = "true" if value else "false"
    if isinstance(kind, shape.StrType) and is_narrow(kind) and is_fitting(text, kind):
        yield Fix(text, f'quote it: "{text}"{YAML_BOOLEANS}')
    for word in ON if value else OFF:
        if is_narrow(kind) and is_fitting(word, kind):
            advice = f'quote it: "{word}"' if word in BOOLEANS else f"write {word}"
            yield Fix(word, advice + YAML_BOOLEANS)


def fix_pattern(value: str, kind: shape.StrType) -> Iterator[Fix]:
    """Yield the text without quotes inside it, another tool's word, the other case, or the one version in a text for a
    version."""
    bare = value.strip(" \t" + QUOTES)
    if bare != value and is_fitting(bare, kind):
        yield Fix(bare, f'write "{bare}"')
    elif is_fitting(other := OTHER_WORDS.get(value.casefold(), ""), kind) and other:
        yield Fix(other, f"write {other}")
    elif other := next((text for text in list_other_forms(value) if is_fitting(text, kind)), ""):
        yield Fix(other, f"write {format_as_typed(other)}")
    elif is_for_versions(kind):
        yield from fix_version(value, kind)


def list_other_forms(value: str) -> list[str]:
    """List a text in lower and upper case, a size without iB (16GiB), and a module without the end of its file."""
    size = re.fullmatch(r"([0-9]+) ?([KMGT])i?B?", value)
    return [value.lower(), value.upper(), *([f"{size[1]}{size[2]}"] if size else []), value.removesuffix(".ko")]


def fix_version(value: str, kind: shape.StrType) -> Iterator[Fix]:
    if value.casefold() in ("latest", "newest", "*") and is_fitting(ANY, kind):
        yield Fix(ANY, f"write {ANY}")
    versions = [part for part in _VERSION.findall(value) if is_fitting(part, kind)]
    package = _IN_A_PACKAGE.fullmatch(value)
    if package and not is_fitting(ANY, kind) and is_fitting(".".join(package.groups()), kind):
        versions = [".".join(package.groups())]
    if len(versions) == 1:
        yield Fix(versions[0], f'write "{versions[0]}"')


def is_for_versions(kind: shape.StrType) -> bool:
    """True if a field is for versions: it accepts some, and no other names."""
    accepted = any(is_fitting(text, kind) for text in VERSIONS)
    return accepted and not any(is_fitting(text, kind) for text in NO_VERSIONS)


def fix_choice(value: str, choices: list[str]) -> Iterator[Fix]:
    """Yield the one choice that a misspelled word resembles, or that is a word of it; a path resembles none."""
    if "/" in value:
        return
    meaning = BOOLEANS.get(value.casefold())
    if meaning is not None and (words := [word for word in (ON if meaning else OFF) if word in choices]):
        yield Fix(words[0], f"write {words[0]}")
    squeezed = {re.sub(r"[^a-z0-9]", "", choice.casefold()): choice for choice in choices}
    word = re.sub(r"[^a-z0-9]", "", value.casefold().removesuffix(".service"))
    if (other := OTHER_WORDS.get(word, "")) in choices:
        yield Fix(other, f"write {other}")
    near = [word] if word in squeezed else difflib.get_close_matches(word, squeezed, n=2, cutoff=0.8)
    if word in squeezed or (len(near) == 1 and sum(word in choice for choice in squeezed) < 2):
        yield Fix(squeezed[near[0]], f'did you mean "{squeezed[near[0]]}"?')
    elif choice := find_shared_word(value.casefold(), choices):
        yield Fix(choice, f'did you mean "{choice}"?')


def find_shared_word(value: str, choices: list[str]) -> str:
    """Return the one choice that is a word of the value (nvidia-open), or of which the value is one (peermem); empty if
    there is none, or several."""
    words = re.split(r"[^a-z0-9]+", value)
    if set(words) & set(NOT):
        return ""
    sharing = [c for c in choices if c.casefold() in words or value in re.split(r"[^a-z0-9]+", c.casefold())]
    return sharing[0] if len(sharing) == 1 else ""


def is_octal(kind: TextKind) -> bool:
    """Return whether a text is a file's mode: it takes octal digits and no others."""
    if isinstance(kind, shape.LiteralType):
        return all(re.fullmatch(r"0[0-7]{3}", str(choice)) for choice in kind.values)
    return is_fitting("0777", kind) and not is_fitting("0999", kind)


def fix_fraction(value: float, kind: TextKind) -> Iterator[Fix]:
    """Yield a fix for an unquoted version: YAML read a number, and lost a trailing zero."""
    texts = [text for text in (f"{value}", f"{value}0") if is_fitting(text, kind)]
    if texts and not is_narrow(kind):
        yield Fix(Unknown, "quote it as it was written: YAML read a number")
    elif texts:
        lost = len(texts) > 1 and re.search(r"\.\d\Z", texts[0])
        more = f', or "{texts[1]}" if that was written: YAML drops a zero at the end of a number' if lost else ""
        yield Fix(texts[0], f'quote it: "{texts[0]}"{more}')
    elif value.is_integer() and is_fitting(f"{value:.0f}", kind):
        yield Fix(f"{value:.0f}", f'write "{value:.0f}"')


def format_as_typed(value: object) -> str:
    """Return a value as it is typed in YAML, on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{format_key(key)}: {format_as_typed(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(format_as_typed, value))}]"
    if isinstance(value, str):
        plain = re.fullmatch(r"[A-Za-z](?:[\w.-]*\w)?", value) and value.casefold() not in {*BOOLEANS, "null", "y", "n"}
        return value if plain else json.dumps(value, ensure_ascii=False)
    return json.dumps(value)


def format_key(key: object) -> str:
    """Return a key as it is typed in YAML: in quotes if YAML would read a number or a boolean."""
    text = str(key)
    return json.dumps(text) if re.fullmatch(r"[0-9.:_]+", text) or text.casefold() in BOOLEANS else text


def is_narrow(kind: shape.Type) -> bool:
    """True if the type of a field is so specific that its value identifies the field."""
    if isinstance(kind, shape.VarTupleType | shape.ListType):
        return any(map(is_narrow, list_members(kind.item_type)))
    return isinstance(kind, shape.LiteralType) or (isinstance(kind, shape.StrType) and bool(kind.pattern))


_MEASURE = re.compile(r"([0-9]{1,15}) ?([A-Za-z%]+(?:/s)?)")
_COUNT = re.compile(r"x ?([0-9]{1,4})|([0-9]{1,4}) ?(?:x|gpus?|cards?|hosts?|ports?)", re.IGNORECASE)
_BYTES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
# Units of fields, as descriptions name them, and how many of these others are.
UNITS: dict[str, dict[str, float]] = {
    "Gb/s": {**dict.fromkeys(("G", "Gb", "Gb/s", "Gbps", "Gbit", "Gbit/s", "GbE"), 1), "T": 1000, "Tb/s": 1000},
    "GB/s": {**dict.fromkeys(("G", "GB", "GB/s", "GBps"), 1), "TB/s": 1000},
    "KiB": {f"{unit}{end}": size / 1024 for unit, size in _BYTES.items() if unit for end in ("", "B", "iB", "b")},
    "bytes": {f"{unit}{end}": size for unit, size in _BYTES.items() for end in ("", "B", "iB") if unit or end},
    "MHz": {"MHz": 1, "Mhz": 1, "GHz": 1000},
    "W": {"W": 1, "kW": 1000},
    "watts": {"W": 1, "w": 1, "watt": 1, "watts": 1, "kW": 1000},
    "percent": {"%": 1, "percent": 1},
    "seconds": {**dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1), "m": 60, "min": 60, "h": 3600},
    "minutes": {**dict.fromkeys(("m", "min", "mins", "minutes"), 1), "h": 60},
    "us": {"us": 1, "ms": 1000},
}
# Gb/s of InfiniBand's generations, on a port of the usual width: https://www.infinibandta.org/infiniband-roadmap/
RATES = {"qdr": 40, "fdr": 56, "edr": 100, "hdr": 200, "hdr100": 100, "ndr": 400, "ndr200": 200, "xdr": 800}
WORDS = {word: number for number, word in enumerate("one two three four five six seven eight nine ten".split(), 1)}


def find_measure(text: str, description: str) -> int | None:
    """Return the whole number of the field's unit that a text means: 400G, NDR and 400 Gb/s where a port's rate is
    asked for."""
    plain = text.strip()
    unit = next((word for word in re.split(r"[^\w/]+", description) if word in UNITS), "")
    if "MTU" in description:  # 9k is 9000 to some, and 9216 to others
        return None
    if unit == "Gb/s" and plain.casefold() in RATES:
        return RATES[plain.casefold()]
    measure = _MEASURE.fullmatch(plain)
    number = parse_whole(measure[1]) if measure else None
    of = {name.casefold() if unit != "GB/s" else name: size for name, size in UNITS.get(unit, {}).items()}
    factor = (of.get(measure[2]) or of.get(measure[2].casefold())) if measure else None
    if number is None or factor is None or number * factor != int(number * factor):
        return None
    if unit == "Gb/s" and measure and measure[2] in ("GB", "GB/s"):  # bytes, eight times as much
        return None
    return int(number * factor)


def find_count(text: str) -> int | None:
    """Return the number that a text counts: 8x, x8, 8 GPUs, eight."""
    counted = _COUNT.fullmatch(text.strip())
    return parse_whole(counted[1] or counted[2]) if counted else WORDS.get(text.strip().casefold())
