"""HOST, the argument of commands that show single hosts: a host of the inventory, or a pattern as --limit takes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from gpuprov.cli.options import raw_hosts

T = TypeVar("T")


def of_host(host: str, sources: tuple[str, ...], options: dict[str, Any], read: Callable[..., T]) -> T:
    """Call `read(sources, options)` limited to the hosts that the argument HOST matches. Raises SpecError if it matches none, and
    GpuprovError if none of them is within --limit."""
    from msgspec.structs import replace

    from gpuprov.errors import GpuprovError
    from gpuprov.spec.problem import SpecError

    if options["limit"]:
        inside = {raw.name for raw in raw_hosts(sources, options)}
        mine = [raw.name for raw in of_host(host, sources, {**options, "limit": None}, raw_hosts) if raw.name in inside]
        if not mine:
            raise GpuprovError(
                f'HOST "{host}" and --limit "{options["limit"]}" have no host in common', "leave one out"
            )
        host = ",".join(mine)
    try:
        return read(sources, {**options, "limit": host})
    except SpecError as error:
        told = [replace(one, message=one.message.replace("--limit", "HOST")) for one in error.problems]
        raise SpecError(told) from error
