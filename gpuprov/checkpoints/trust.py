"""Limits of a checkpoint, which a host supplies: it may have this machine do no more than its inventory permits.
Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from gpuprov.checkpoints.choose import Back, Refused
from gpuprov.spec.model import RawHost
from gpuprov.spec.problem import Path, format_path
from gpuprov.spec.repository import FILES

# Fields that name a file of the machine that runs gpuprov, or another host.
BEYOND = frozenset((*FILES, "token_file", "config_file", "build_host"))
# Policies that the inventory decides now, whatever it permitted then.
POLICIES = ("reboot", "on_failure")


def trusted(raw: RawHost, back: Back) -> Back | Refused:
    """Apply the inventory's policies to a checkpoint. Refused if it names a file of this machine, or another host, that
    the inventory does not: a host that lies would get what it names."""
    known = dict(_find_beyond(raw.values, ()))
    for path, value in _find_beyond(back.values, ()):
        if value and known.get(path) != value:
            return Refused(
                f"its checkpoint names {format_path(path)} {value!r}, and the inventory does not; a host's word is "
                "not enough",
                f"name it in the inventory as it was, {format_path(path)}, then roll back again",
            )
    values = {name: value for name, value in back.values.items() if name not in POLICIES}
    values |= {name: raw.values[name] for name in POLICIES if name in raw.values}
    return msgspec.structs.replace(back, values=values)


def _find_beyond(value: object, path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key in BEYOND:
                yield (*path, str(key)), inner
            else:
                yield from _find_beyond(inner, (*path, str(key)))
    elif isinstance(value, (list, tuple)):
        for number, inner in enumerate(value):
            yield from _find_beyond(inner, (*path, number))
