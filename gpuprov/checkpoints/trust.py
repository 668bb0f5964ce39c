"""What a checkpoint, which a host says, may have this machine do: no more than its inventory says, too. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from gpuprov.checkpoints.choose import Back, Refused
from gpuprov.spec.model import RawHost
from gpuprov.spec.problem import Path, dotted
from gpuprov.spec.repository import FILES

BEYOND = frozenset((*FILES, "token_file", "config_file", "build_host"))
"""Fields that name a file of the machine that runs gpuprov, or another host."""
POLICIES = ("reboot", "on_failure")
"""What the inventory permits now, whatever it permitted then."""


def trusted(raw: RawHost, asked: Back) -> Back | Refused:
    """The same with the policies of the inventory. Refused where it names a file of this machine, or another host, that the inventory
    does not: a host that lies would get what it names."""
    known = dict(_beyond(raw.values, ()))
    for path, value in _beyond(asked.values, ()):
        if value and known.get(path) != value:
            return Refused(
                f"its checkpoint names {dotted(path)} {value!r}, and the inventory does not: a host's word is not enough for that",
                f"name it in the inventory as it was, {dotted(path)}, then roll back again",
            )
    values = {name: value for name, value in asked.values.items() if name not in POLICIES}
    values |= {name: raw.values[name] for name in POLICIES if name in raw.values}
    return msgspec.structs.replace(asked, values=values)


def _beyond(value: object, path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key in BEYOND:
                yield (*path, str(key)), inner
            else:
                yield from _beyond(inner, (*path, str(key)))
    elif isinstance(value, (list, tuple)):
        for number, inner in enumerate(value):
            yield from _beyond(inner, (*path, number))
