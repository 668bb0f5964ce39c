"""The command `gpuprov drift`: parse, call, return the exit code."""

from datetime import UTC, datetime
from time import monotonic
from typing import Any

import click

from gpuprov.cli import habits, options
from gpuprov.cli.sections import Command, Seconds


class Moment(click.ParamType[datetime]):
    """A time in ISO 8601; without an offset it is UTC."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        try:
            then = datetime.fromisoformat(str(value).replace("Z", "+00:00"))
        except ValueError:
            self.fail(f"{value!r} is no time; write one as 2026-11-17, or 2026-11-17T14:02+01:00", param, ctx)
        return then if then.tzinfo else then.replace(tzinfo=UTC)


@click.command(cls=Command, short_help="Show what has drifted on hosts, and what changed it.")
@options.inventory
@options.reaching
@options.capabilities
@click.option(
    "--since", type=Moment(), metavar="TIME", help="Look at changes after TIME instead of after the last apply."
)
@click.option(
    "--timeout", metavar="SECONDS", type=Seconds(1), default=60.0, show_default=True, help="Time limit of one host."
)
@habits.refused("--from", why="gpuprov show HOST --html FILE --from says what a record holds of changes")
@options.json_flag
def drift(
    inventory: options.InventoryOptions, only: str | None, since: datetime | None, timeout: float, as_json: bool
) -> int:
    """Show how hosts differ from what was applied and from their specs, and which command changed them. Changes
    nothing.

    The host's receipt says what was applied, the checks of verify what differs, and the logs of apt, dnf and zypper
    which command changed the packages that a check minds. Shell histories are never read. A host that will not come
    back from its next boot comes first. Exit code 1: something differs.

    \b
    Example: gpuprov drift inventory.yaml --limit train
             gpuprov drift inventory.yaml --since 2026-11-16 --json
    """
    from gpuprov.core import terminal
    from gpuprov.core.sanitize import cleaned
    from gpuprov.drift import document, text
    from gpuprov.drift import drift as judged
    from gpuprov.report.results import deliver

    fleet = options.load(inventory)
    chosen = options.only(only)
    options.ask_something(fleet, chosen)
    began = monotonic()
    with terminal.Progress([raw.name for raw, _ in fleet.pairs], "reading", quiet=True) as progress:
        pace = options.pace(inventory)
        hosts = judged(fleet.pairs, only=chosen, since=since, pace=pace, timeout=timeout, on_done=progress.done)
    output = document.build_document(hosts, monotonic() - began)
    deliver(output, None if as_json else lambda: cleaned(text.as_text(hosts, width=terminal.width())))
    return output.exit_code
