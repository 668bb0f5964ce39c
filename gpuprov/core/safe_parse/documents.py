"""JSON, TOML and YAML documents of hosts and inventories as plain values."""

from collections.abc import Mapping
from typing import Any, TypeAlias, TypeVar

from gpuprov.core.safe_parse.checks import check_json, check_toml, check_values, check_yaml, make_depth_error
from gpuprov.core.safe_parse.limits import DIGITS, HOST_TEXT, TOML_TEXT, Unreadable, make_size_error
from gpuprov.core.safe_parse.numbers import parse_number, parse_signed

T = TypeVar("T")
# A mapping of YAML, JSON or TOML that nothing has judged yet: variables of an inventory, a spec as it is written.
Tree: TypeAlias = dict[str, Any]
# The same, to be read.
TreeView: TypeAlias = Mapping[str, Any]


def parse_json(text: str | bytes, largest: int = HOST_TEXT) -> Any:
    """A JSON document."""
    import json as reader

    plain = check_text(text, largest)
    check_json(plain)
    try:
        return reader.loads(plain, parse_int=parse_whole, parse_float=parse_finite, parse_constant=refuse_constant)
    except RecursionError:
        raise make_depth_error() from None
    except ValueError as error:
        raise Unreadable(f"not JSON: {error}") from error


def parse_typed_json(text: str | bytes, kind: type[T], *, strict: bool = True, largest: int = HOST_TEXT) -> T:
    """A JSON document as `kind`."""
    import msgspec

    plain = check_text(text, largest)
    check_json(plain)
    try:
        return msgspec.json.decode(plain, type=kind, strict=strict)
    except RecursionError:
        raise make_depth_error() from None
    except (msgspec.MsgspecError, ValueError) as error:
        raise Unreadable(str(error)) from error


def parse_toml(text: str, largest: int = TOML_TEXT) -> Tree:
    """A TOML document."""
    import tomllib

    plain = check_text(text, largest)
    check_toml(plain)
    try:
        read = tomllib.loads(plain, parse_float=parse_finite)
    except RecursionError:
        raise make_depth_error() from None
    except ValueError as error:
        raise Unreadable(f"not TOML: {error}") from error
    check_values(read)
    return read


def parse_yaml(text: str | bytes, largest: int = HOST_TEXT) -> Any:
    """A YAML document, with the types of YAML's core schema."""
    import yaml as reader  # 10 ms

    plain = check_text(text, largest)
    check_yaml(plain)
    loader: Any = getattr(reader, "CSafeLoader", reader.SafeLoader)
    try:
        return reader.load(plain, Loader=loader)
    except Exception as error:  # besides YAMLError, its constructors raise what int, datetime and base64 raise
        raise Unreadable(f"not YAML: {' '.join(str(error).split())}") from error


def check_text(text: str | bytes, largest: int) -> str:
    if len(text) > largest:
        raise make_size_error(largest)
    return text if isinstance(text, str) else text.decode(errors="replace")


def parse_whole(text: str) -> int:
    value = parse_signed(text)
    if value is None:
        raise Unreadable(f"{text[:60]} has too many digits", f"{DIGITS}")
    return value


def parse_finite(text: str) -> float:
    value = parse_number(text)
    if value is None:
        raise Unreadable(f"{text[:60]} is not a number that can be computed with")
    return value


def refuse_constant(text: str) -> float:
    raise Unreadable(f"{text} is not JSON")
