"""Origin of a page: the time, the inventory, and the command line, without anything that may hold a secret."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from gpuprov.cli import options
from gpuprov.cli.from_records import lacks_inventory

if TYPE_CHECKING:
    from gpuprov.report.page import About


def about(
    verb: str,
    inventory: options.InventoryOptions,
    only: Collection[str] | None = None,
    files: Mapping[str, Path | Sequence[Path] | None] | None = None,
    host: str = "",
    quick: bool = False,
) -> About:
    """Return the origin. The command includes what selects hosts, checks and files. Extra variables and login options
    are left out. `host`: the argument HOST of a command that has one."""
    from gpuprov.report.page import About

    sources = (files or {}).get("from") or ()
    records = [str(path) for path in ([sources] if isinstance(sources, Path) else sources)]
    alone = records and lacks_inventory(inventory)
    inventories = [] if alone else [str(source) for source in options.all_sources(inventory)]
    words = ["gpuprov", verb, *filter(None, [host]), *inventories]
    words += ["--limit", inventory.limit] if inventory.limit else []
    words += ["--only", ",".join(sorted(only))] if only else []
    words += ["--quick"] if quick else []
    for name, given in (files or {}).items():
        for path in [given] if isinstance(given, Path) else given or ():
            words += [f"--{name}", str(path)]
    return About(
        at=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        inventory=", ".join(inventories or records),
        command=shlex.join(words),
    )


def page_of(verb: str, folders: Sequence[Path], fleet: Path | None, run: str) -> About:
    """Return the same for a page that is made from files."""
    from gpuprov.report.page import About

    words = ["gpuprov", *verb.split(), *map(str, folders)]
    words += ["--fleet", str(fleet)] if fleet else []
    words += ["--run", run] if run else []
    return About(
        at=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC", inventory=", ".join(map(str, folders)), command=shlex.join(words)
    )
