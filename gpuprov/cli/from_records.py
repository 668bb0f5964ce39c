"""--from: records are read and judged in place of hosts."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuprov.cli.options import InventoryOptions
    from gpuprov.facts.captures import Record
    from gpuprov.fleet.specs import Fleet
    from gpuprov.spec.model import HostSpec
    from gpuprov.verify.evaluate import Result
    from gpuprov.verify.verify import Pairs


def read_records(paths: tuple[Path, ...], *, warn: bool = True, hosts: Collection[str] = ()) -> Iterator[Record]:
    """Yield the records at these paths, one after another, and name the files that are not read. warn: about incomplete
    ones, with the reason; results name them anyway. `hosts`: names of the inventory."""
    from gpuprov.core import terminal
    from gpuprov.facts.captures import iterate, iterate_input

    for path in paths:
        piped = iterate_input(sys.stdin, hosts, terminal.progress) if str(path) == "-" else None
        for record in piped or iterate(path, hosts, terminal.progress):
            if warn and record.cut:
                terminal.progress(f"{record.path}: the record is incomplete: {record.cut}")
            yield record


def verify_records(
    fleet: Fleet, pairs: Pairs, paths: tuple[Path, ...], only: Collection[str] | None, *, named: bool
) -> list[Result]:
    """Return the results of the fleet's hosts, with these specs, by their records. Names the hosts of which none is.
    `named`: the hosts were named, by --limit."""
    from gpuprov.core import terminal
    from gpuprov.inventory.names import fold_names
    from gpuprov.verify import recorded

    results = recorded.verify(
        pairs,
        read_records(paths, warn=False, hosts=recorded.list_names(pairs, fleet.left_out)),
        only=only,
        named=named,
        others=fleet.left_out,
        note=terminal.progress,
    )
    if left := recorded.left_out(pairs, results):
        terminal.progress(f"not judged, since no record is of them: {fold_names(left)}")
    return results


def lacks_inventory(inventory: InventoryOptions) -> bool:
    """Return whether no inventory was named or found, and no host chosen of one."""
    from gpuprov.cli.options import all_sources
    from gpuprov.inventory.sources import NoInventoryError

    if inventory.limit:
        return False
    try:
        all_sources(inventory)
    except NoInventoryError:
        return True
    return False


def verify_alone(
    paths: tuple[Path, ...], build_spec: Callable[[str], HostSpec], only: Collection[str] | None
) -> list[Result]:
    """Return the results of the hosts that the records are of, without an inventory."""
    from gpuprov.verify import recorded

    return recorded.verify_alone(read_records(paths, warn=False), build_spec, only)
