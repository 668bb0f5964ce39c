"""Numbers that YAML reads in another base than they seem to be written in: 0010 is 8, and 1:30 is 90."""

import os
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

from gpuprov.core import safe_parse
from gpuprov.spec.problem import Origin, Path, Problem, format_path

_MISREAD = re.compile(r"([-+]?(?:0[0-7]+|[0-9]+(?::[0-5]?[0-9])+))(?=[ \t]*(?:[,}\]#]|\Z))")


def find_misread(values: object, origins: Mapping[Path, Origin], path: Path = ()) -> Iterator[Problem]:
    """Yield a warning for each value of a mapping that is such a number. `origins`: the places of the values."""
    for key, value in values.items() if isinstance(values, Mapping) else ():
        here = (*path, key)
        origin = origins.get(here)
        if isinstance(value, int) and not isinstance(value, bool) and origin and (text := _find_written(origin)):
            message = f"{format_path(here)} is written {text}, which YAML reads as {value:d}"
            fix = f'write {value:d}, or quote it: "{text}"'
            yield Problem(path=here, message=message, fix=fix, origin=origin, severity="warning")
        yield from find_misread(value, origins, here)


def _find_written(origin: Origin) -> str:
    """Return such a number as it is written; empty for any other value, or where the text is not known."""
    lines = _read_lines(origin.file) if origin.line else ()
    line = lines[origin.line - 1] if 0 < origin.line <= len(lines) else ""
    match = _MISREAD.match(line, max(origin.column - 1, 0))
    return match[1] if match else ""


def _read_lines(file: str) -> tuple[str, ...]:
    try:
        state = os.stat(file)
        return _read_once(file, state.st_mtime_ns, state.st_size)
    except (OSError, safe_parse.Unreadable):
        return ()


@lru_cache(maxsize=16)
def _read_once(file: str, _changed: int, _size: int) -> tuple[str, ...]:
    return tuple(safe_parse.read_contents(file).decode(errors="replace").splitlines())
