"""JSON, TOML and YAML documents of hosts and inventories as plain values."""

from __future__ import annotations

from typing import Any, TypeVar

from gpuprov.reading.checks import check_json, check_toml, check_values, check_yaml, too_deep
from gpuprov.reading.limits import DIGITS, HOST_TEXT, TOML_TEXT, Unreadable, too_large
from gpuprov.reading.numbers import number, signed

T = TypeVar("T")


def json(text: str | bytes, largest: int = HOST_TEXT) -> Any:
    """A JSON document."""
    import json as reader

    plain = _text(text, largest)
    check_json(plain)
    try:
        return reader.loads(plain, parse_int=_whole, parse_float=_finite, parse_constant=_refused)
    except RecursionError:
        raise too_deep() from None
    except ValueError as error:
        raise Unreadable(f"not JSON: {error}") from error


def typed_json(text: str | bytes, kind: type[T], *, strict: bool = True, largest: int = HOST_TEXT) -> T:
    """A JSON document as `kind`."""
    import msgspec

    plain = _text(text, largest)
    check_json(plain)
    try:
        return msgspec.json.decode(plain, type=kind, strict=strict)
    except RecursionError:
        raise too_deep() from None
    except (msgspec.MsgspecError, ValueError) as error:
        raise Unreadable(str(error)) from error


def toml(text: str, largest: int = TOML_TEXT) -> dict[str, Any]:
    """A TOML document."""
    import tomllib

    plain = _text(text, largest)
    check_toml(plain)
    try:
        read = tomllib.loads(plain, parse_float=_finite)
    except RecursionError:
        raise too_deep() from None
    except ValueError as error:
        raise Unreadable(f"not TOML: {error}") from error
    check_values(read)
    return read


def yaml(text: str | bytes, largest: int = HOST_TEXT) -> Any:
    """A YAML document, with the types of YAML's core schema."""
    import yaml as reader  # 10 ms

    plain = _text(text, largest)
    check_yaml(plain)
    loader: Any = getattr(reader, "CSafeLoader", reader.SafeLoader)
    try:
        return reader.load(plain, Loader=loader)
    except Exception as error:  # besides YAMLError, its constructors raise what int, datetime and base64 raise
        raise Unreadable(f"not YAML: {' '.join(str(error).split())}") from error


def _text(text: str | bytes, largest: int) -> str:
    if len(text) > largest:
        raise too_large(largest)
    return text if isinstance(text, str) else text.decode(errors="replace")


def _whole(text: str) -> int:
    value = signed(text)
    if value is None:
        raise Unreadable(f"{text[:60]} has too many digits", f"{DIGITS}")
    return value


def _finite(text: str) -> float:
    value = number(text)
    if value is None:
        raise Unreadable(f"{text[:60]} is no number that can be computed with")
    return value


def _refused(text: str) -> float:
    raise Unreadable(f"{text} is no JSON")
