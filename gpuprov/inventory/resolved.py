"""The result of reading the sources, before `--limit`."""

import msgspec

from gpuprov.spec.model import RawHost
from gpuprov.spec.problem import Problem


class Resolved(msgspec.Struct, frozen=True):
    """All hosts in inventory order, all group names, Ansible's warnings, whether it may be kept in the cache, the names
    that extra variables set, the problems that left these hosts readable, and the groups in each group, which the cache
    does not keep."""

    hosts: tuple[RawHost, ...]
    groups: tuple[str, ...]
    warnings: tuple[Problem, ...] = ()
    cacheable: bool = False
    extra: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    children: dict[str, tuple[str, ...]] = {}
