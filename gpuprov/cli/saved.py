"""A saved plan on the command line: written by plan with --out, and accepted by apply in place of an inventory."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuprov.cli import options
from gpuprov.cli.about import about

if TYPE_CHECKING:
    from gpuprov.apply.model import Options
    from gpuprov.core.errors import GpuprovError
    from gpuprov.fleet.specs import Fleet
    from gpuprov.plan import HostPlan
    from gpuprov.plan.read import Reading
    from gpuprov.plan.saved import Saved

# Options that define what is applied: the plan has set them.
DEFINING = ("limit", "inventories", "extra_vars", "user"), ("only", "full", "prune", "reboot")


def write(
    path: Path,
    fleet: Fleet,
    readings: Mapping[str, Reading],
    plans: list[HostPlan],
    inventory: options.InventoryOptions,
    chosen: Options,
) -> None:
    """Write the plan to a file that only this user can read. `chosen`: the options that apply has in common."""
    from gpuprov.core import terminal
    from gpuprov.inventory.limit import make_absolute
    from gpuprov.inventory.sources import resolve_sources
    from gpuprov.plan import saved
    from gpuprov.report.files import write_atomic

    request = saved.Asked(
        inventory=tuple(resolve_sources(options.all_sources(inventory))[0]),
        limit=make_absolute(inventory.limit) if inventory.limit else None,
        extra_vars=tuple(
            f"@{os.path.abspath(value[1:])}" if value.startswith("@") else value for value in inventory.extra_vars
        ),
        user=inventory.user,
        only=tuple(sorted(chosen.only)) if chosen.only else None,
        prune=chosen.prune,
    )
    made = saved.made(request, fleet.pairs, readings, plans, f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}")
    write_atomic(path, saved.text(made, fleet.pairs), mode=0o600)
    if all(plan.unreachable for plan in plans):
        terminal.progress(f"saved in {path}, which cannot be applied: no host was reached")
    else:
        terminal.progress(f"saved: gpuprov apply {path} does this, and refuses if anything has changed by then")


def render_page(
    fleet: Fleet,
    plans: list[HostPlan],
    inventory: options.InventoryOptions,
    only: frozenset[str] | None,
    files: Mapping[str, Path | None],
    *,
    quick: bool,
) -> str:
    """Return the plan as a page, without the inventory's secrets. `files`: `out`, the saved plan, is the argument of
    apply there."""
    from gpuprov.plan import page, saved

    apply = (
        shlex.join(["gpuprov", "apply", str(files["out"])]) if files["out"] else about("apply", inventory, only).command
    )
    idle = all(plan.idle or plan.unreachable for plan in plans)
    masked = saved.masked(plans, fleet.pairs)
    return page.render(masked, about("plan", inventory, only, files, quick=quick), "" if idle else apply)


def read(inventory: options.InventoryOptions, chosen: Options) -> Saved | None:
    """Return the plan, if the only source is a saved plan. Raises UsageError for an option that repeats what the plan
    sets."""
    from gpuprov.plan import saved

    plans = [source for source in inventory.sources if saved.is_saved_plan(source)]
    if not plans:
        return None
    if len(inventory.sources) > 1:
        raise click.UsageError(f"{plans[0]} is a saved plan: name it alone")
    for values, names in zip((inventory, chosen), DEFINING, strict=True):
        for name in names:
            if getattr(values, name):
                option = "inventory" if name == "inventories" else name.replace("_", "-")
                raise click.UsageError(
                    f"--{option} goes with gpuprov plan: what {plans[0]} says is applied, or nothing"
                )
    return saved.load(Path(plans[0]))


def restore_options(
    saved: Saved, inventory: options.InventoryOptions, chosen: Options
) -> tuple[options.InventoryOptions, Options]:
    """Return the options as set by the plan."""
    from msgspec.structs import replace

    request = saved.asked
    restored = inventory._replace(
        sources=request.inventory, inventories=(), limit=request.limit, extra_vars=request.extra_vars, user=request.user
    )
    only = options.only(",".join(request.only) if request.only else None)
    return restored, replace(chosen, prune=request.prune, only=only, yes=True)


def not_reached(saved: Saved) -> dict[str, GpuprovError]:
    """Return why hosts of the plan take no part: nothing was approved for hosts that could not be read."""
    from gpuprov.core.errors import UnreachableError
    from gpuprov.plan.saved import AGAIN

    away = {host.host: host.plan.unreachable for host in saved.hosts if host.plan.unreachable}
    return {name: UnreachableError(f"the plan did not reach it: {why}", AGAIN) for name, why in away.items()}


def narrowed(saved: Saved, fleet: Fleet) -> Fleet:
    """Return the fleet of the plan. Raises GpuprovError if the inventory has changed, or if no host was reachable."""
    from msgspec.structs import replace

    from gpuprov.core import terminal
    from gpuprov.core.errors import GpuprovError
    from gpuprov.core.sanitize import cleaned
    from gpuprov.plan import as_text
    from gpuprov.plan import saved as saving

    pairs = saving.of_plan(saved, fleet.pairs)
    if away := saving.left_out(saved):
        terminal.warning(f"left out, since the plan did not reach them: {', '.join(away)}")
    if not pairs:
        raise GpuprovError("the plan reached no host", saving.AGAIN)
    colour = terminal.coloured(sys.stderr)
    output = as_text([host.plan for host in saved.hosts], colour=colour, width=terminal.room(sys.stderr), ahead=True)
    terminal.progress(f"{output}\nthe plan of {cleaned(saved.made_at)}", in_colour=colour)
    return replace(fleet, pairs=tuple(pairs))
