"""What a reading of the sources yields, before `--limit`."""

from __future__ import annotations

import msgspec

from gpuprov.spec.model import RawHost
from gpuprov.spec.problem import Problem


class Resolved(msgspec.Struct, frozen=True):
    """All hosts in inventory order, all group names, Ansible's warnings, whether it may be kept in the cache, and the names that
    extra variables set."""

    hosts: tuple[RawHost, ...]
    groups: tuple[str, ...]
    warnings: tuple[Problem, ...] = ()
    cacheable: bool = False
    extra: tuple[str, ...] = ()
