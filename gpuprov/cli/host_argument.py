"""HOST, the argument of commands that show single hosts: a host of the inventory, or a pattern as --limit takes it."""

from collections.abc import Callable
from typing import TypeVar

from gpuprov.cli.options import InventoryOptions, raw_hosts

T = TypeVar("T")


def of_host(host: str, inventory: InventoryOptions, read: Callable[[InventoryOptions], T]) -> T:
    """Call `read(inventory)` limited to the hosts that the argument HOST matches. Raises SpecError if it matches
    none, and GpuprovError if none of them is within --limit."""
    from msgspec.structs import replace

    from gpuprov.core.errors import GpuprovError
    from gpuprov.spec.problem import SpecError

    if inventory.limit:
        inside = {raw.name for raw in raw_hosts(inventory)}
        names = [raw.name for raw in of_host(host, inventory._replace(limit=None), raw_hosts) if raw.name in inside]
        if not names:
            raise GpuprovError(f'HOST "{host}" and --limit "{inventory.limit}" have no host in common', "leave one out")
        host = ",".join(names)
    try:
        return read(inventory._replace(limit=host))
    except SpecError as error:
        problems = [replace(problem, message=problem.message.replace("--limit", "HOST")) for problem in error.problems]
        raise SpecError(problems) from error
