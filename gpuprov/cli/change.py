"""The commands `gpuprov plan` and `gpuprov apply`: parse, call, print, return the exit code."""

from __future__ import annotations

import sys
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from gpuprov.cli import carried, habits, options, saved
from gpuprov.cli.about import about
from gpuprov.cli.sections import WEEK, Command, Written
from gpuprov.core.errors import GpuprovError
from gpuprov.core.sanitize import counted
from gpuprov.core.time_limits import LEASE

if TYPE_CHECKING:
    from gpuprov.apply.model import Options
    from gpuprov.fleet.specs import Fleet
    from gpuprov.plan.read import Pair, Reading

FILE = Written()
prune_option = click.option(
    "--prune",
    is_flag=True,
    help="Also take away files, units and holds that an earlier apply brought and the specs ask for no longer, and put "
    "settings back.",
)


def _check_prune(prune: bool, only: frozenset[str] | None) -> None:
    """Raise UsageError for --prune together with --only."""
    if prune and only:
        raise click.UsageError("--prune goes by the whole spec of each host: leave out --only")


@click.command(cls=Command, short_help="Show what apply would change, and why. Changes nothing.")
@options.inventory
@options.reaching
@options.capabilities
@click.option(
    "--quick",
    is_flag=True,
    help="Plan from the checks alone, without asking package managers, and without diffs of files.",
)
@prune_option
@click.option("-o", "--out", type=FILE, help="Save the plan to this file, for gpuprov apply FILE.")
@click.option("--html", type=FILE, help="Also write the plan to this file, as one HTML page.")
@habits.refused(
    "--from",
    why="a plan asks the host's package manager; gpuprov verify --from says what differs in a record, gpuprov show "
    "--from lists what the host should have",
)
@options.act_limit
@options.json_flag
def plan(
    *,
    inventory: options.InventoryOptions,
    only: str | None,
    quick: bool,
    out: Path | None,
    html: Path | None,
    timeout: float,
    as_json: bool,
    prune: bool,
) -> int:
    """Show what apply would change on each host, why, and whether it will reboot. Changes nothing.

    With --out the plan is saved: gpuprov apply FILE then does exactly that, or refuses and says what has changed since.

    \b
    Example: gpuprov plan inventory.yaml --limit gpu017
             gpuprov plan inventory.yaml -o friday.plan && gpuprov apply friday.plan
             gpuprov plan inventory.yaml --html plan.html
    """
    from gpuprov import plan as planning
    from gpuprov.apply.model import Options
    from gpuprov.core import terminal
    from gpuprov.plan.decide import PlanOptions
    from gpuprov.plan.show import Terminal
    from gpuprov.report import retry
    from gpuprov.report.files import check_writable
    from gpuprov.report.results import deliver

    check_writable(out, html)
    readings: dict[str, Reading] = {}
    fleet = options.load(inventory, warn=True)
    chosen = options.only(only)
    options.ask_something(fleet, chosen)
    _check_prune(prune, chosen)
    began = monotonic()
    plans = planning.plan(
        fleet.pairs,
        PlanOptions(chosen, prune=prune, exact=not quick),
        pace=options.pace(inventory),
        timeout=timeout,
        show=Terminal(quiet=True),
        on_read=readings.update if out else None,
    )
    colour = terminal.coloured(sys.stdout)

    def as_text() -> str:
        return planning.as_text(plans, verbose=inventory.verbose, colour=colour, width=terminal.room(sys.stdout))

    def as_page() -> str:
        return saved.render_page(fleet, plans, inventory, chosen, {"out": out, "html": html}, quick=quick)

    document = planning.build_document(plans, monotonic() - began)
    deliver(document, None if as_json else as_text, ((html, as_page),))
    if out:
        saved.write(out, fleet, readings, plans, inventory, Options(only=chosen, prune=prune))
    retry.offer("plan", [plan.host for plan in plans if plan.unreachable], len(plans))
    return document.exit_code


@click.command(cls=Command, short_help="Bring the hosts to what their specs say, then verify.")
@options.inventory
@options.reaching
@options.capabilities
@click.option(
    "--act",
    type=click.Choice(["prepare"]),
    help="Only this part: prepare judges and downloads, changes nothing in service, and ends; a later apply uses "
    "what is there.",
)
@click.option("--full", is_flag=True, help="Run every role, even where every check passes.")
@prune_option
@click.option("--reboot", is_flag=True, help="Permit one reboot per host in this run, whatever the spec says.")
@click.option("--serial", metavar="N|N%", help="Hosts in one batch; verify gates the next batch.")
@click.option(
    "--canary", metavar="N|PATTERN", help="Hosts to do first, alone; nothing else starts unless all of them are green."
)
@click.option(
    "--max-fail", metavar="N|N%", default="0", show_default=True, help="Failures tolerated before the roll-out stops."
)
@click.option(
    "--drain",
    metavar="COMMAND",
    help="Run on a host whose GPUs are in use, before its driver changes; "
    "kubernetes [OPTION]...: kubectl, run here, takes pods and GPU operands off the node, and gives it back.",
)
@carried.bundle
@options.break_lock
@click.option("--run", metavar="ID", help="Name of the run, so that it can continue from another machine (a new name).")
@click.option(
    "--lease",
    metavar="SECONDS",
    type=click.IntRange(min=5, max=WEEK),
    default=LEASE,
    show_default=True,
    help="After this long without a sign of its run, another run may take a host over.",
)
@options.act_limit
@click.option("--log-dir", type=Written(folder=True), help="Folder for the log of the run.")
@click.option("--html", type=FILE, help="Also write the outcome to this file, as one HTML page.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@options.json_flag
def apply(
    inventory: options.InventoryOptions,
    bundle: Path | None,
    signers: Path,
    html: Path | None,
    only: str | None,
    **given: Any,
) -> int:
    """Bring the hosts to what their specs say, then verify. Reboots at most once, and only if permitted.

    INVENTORY may be a plan that gpuprov plan saved with --out: then exactly that is done, without a question.

    \b
    Example: gpuprov apply inventory.yaml --canary 1 --serial 10 --max-fail 1
    """
    from functools import partial

    from gpuprov import apply as applying
    from gpuprov.apply.first_look import left
    from gpuprov.plan.saved import agree
    from gpuprov.plan.settings_back import find_moved

    chosen = applying.Options.of({**given, "forks": inventory.forks, "verbose": inventory.verbose}, options.only(only))
    if chosen.act == "prepare":
        _check_prepare(chosen)
    page = about("apply", inventory, chosen.only, {"html": html}) if html else None
    approved = saved.read(inventory, chosen)
    if approved and bundle:
        raise click.UsageError(
            "--bundle goes with an inventory: a saved plan was made from the hosts' own package sources"
        )
    if approved:
        inventory, chosen = saved.restore_options(approved, inventory, chosen)
    fleet = options.load(inventory)
    fleet = saved.narrowed(approved, fleet) if approved else fleet
    options.ask_something(fleet, chosen.only)
    if not chosen.yes:
        options.must_be_able_to_ask("apply asks before it changes anything", "--yes")
    _check_prune(chosen.prune, chosen.only)
    pairs, without = _place_packages(fleet, bundle, signers, inventory.forks) if bundle else (fleet.pairs, {})
    without |= saved.not_reached(approved) if approved else {}
    left_out = {name: left(name, error) for name, error in without.items()}
    compare = partial(find_moved, {raw.name: raw for raw, _ in pairs}, chosen.timeout)
    agreed = partial(agree, approved, compare=compare) if approved else None
    return applying.run(pairs, chosen, agreed, html=html, about=page, left_out=left_out)


def _place_packages(
    fleet: Fleet, bundle: Path, signers: Path, forks: int
) -> tuple[tuple[Pair, ...], dict[str, GpuprovError]]:
    """Copy the bundle's packages to the hosts, where they are a cache and change nothing else; return the hosts that
    have them, and why others cannot. Raises GpuprovError if none can."""
    from gpuprov.bundle import opened, placed
    from gpuprov.core import terminal

    manifest = opened.opened(bundle, signers)
    repositories, refused = opened.matching(manifest, fleet.pairs, forks)
    opened.keep_keys(bundle, manifest)
    terminal.progress(
        f"{bundle}: signed, whole, of {manifest.made_at}; carried to {counted(len(repositories), 'host')}"
    )
    left = [pair for pair in fleet.pairs if pair[0].name not in refused]
    pairs, without = placed.place(bundle, manifest, left, repositories)
    refused |= without
    if not pairs:
        raise next(iter(refused.values()))
    return pairs, refused


def _check_prepare(chosen: Options) -> None:
    """Refuse options that an act without changes in service cannot carry out."""
    for option in ("reboot", "drain"):
        if getattr(chosen, option):
            raise click.UsageError(
                f"--act prepare reboots nothing and drains nothing: leave --{option} to the apply after it"
            )
