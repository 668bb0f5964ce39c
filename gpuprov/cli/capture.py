"""The command `gpuprov capture`: parse, call, return the exit code."""

from pathlib import Path

import click

from gpuprov.cli import complete, options
from gpuprov.cli.host_argument import of_host
from gpuprov.cli.sections import Command, Seconds, Written


@click.command(cls=Command, short_help="Record what the checks read, to be judged elsewhere.")
@click.argument("host", metavar="HOST", shell_complete=complete.hosts)
@options.inventory
@click.option("-o", "--out", required=True, type=Written(folder=True), help="Folder to write.")
@click.option(
    "--timeout", metavar="SECONDS", type=Seconds(1), default=120.0, show_default=True, help="Time limit of one host."
)
@options.reaching
def capture(host: str, inventory: options.InventoryOptions, out: Path, timeout: float) -> int:
    """Record everything that the checks read on hosts, one file each, to be judged elsewhere. Changes nothing.

    HOST is a host of the inventory, or a pattern as --limit takes it. Passwords, tokens and private keys are masked.
    The files can be attached to a ticket; gpuprov verify --from and gpuprov explain --from read them.

    \b
    Example: gpuprov capture gpu017 inventory.yaml --out ticket-4711
             gpuprov verify inventory.yaml --limit gpu017 --from ticket-4711
    """
    from gpuprov.core import terminal
    from gpuprov.core.errors import CODES, GpuprovError
    from gpuprov.export.capture import capture as take
    from gpuprov.report import retry
    from gpuprov.report.files import write_atomic

    raw_hosts = of_host(host, inventory, options.raw_hosts)
    captured = take(raw_hosts, timeout, options.pace(inventory))
    for line in captured.unreachable:
        terminal.warning(line)
    try:
        out.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise GpuprovError(f"{out} cannot be made: {error.strerror}", "name another folder with --out") from error
    for name, text in captured.files.items():
        write_atomic(out / name, text, mode=0o600)
    hidden = f", {captured.masked} secrets masked" if captured.masked else ""
    terminal.progress(f"{len(captured.files)} host{'s' if len(captured.files) != 1 else ''} in {out}{hidden}")
    retry.offer("capture", captured.again, len(raw_hosts), option="")
    return CODES["unreachable" if captured.unreachable else "ok"]
