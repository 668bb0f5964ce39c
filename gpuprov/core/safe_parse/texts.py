"""Texts that are Unicode: half of a pair of surrogates is none, and whatever writes it fails."""

from typing import Any


def make_well_formed(text: str) -> str:
    """The text with U+FFFD for what is not a character: bytes that somebody decoded with `surrogateescape`, halves of
    pairs."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def make_all_well_formed(value: Any) -> Any:
    """Plain data, with every text and key in it well formed."""
    if isinstance(value, str):
        return make_well_formed(value)
    if isinstance(value, dict):
        return {make_all_well_formed(key): make_all_well_formed(item) for key, item in value.items()}
    return [make_all_well_formed(item) for item in value] if isinstance(value, list | tuple) else value


def format_document(value: object, *, indent: int = 2) -> str:
    """A JSON document for others to read. A byte that was not UTF-8 (in a file's name, in what a host said) stands in
    it as U+FFFD."""
    import msgspec

    try:
        encoded = msgspec.json.encode(value)
    except UnicodeEncodeError:
        encoded = msgspec.json.encode(make_all_well_formed(msgspec.to_builtins(value)))
    return msgspec.json.format(encoded, indent=indent).decode()
