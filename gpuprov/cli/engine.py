"""--engine and the connection to Temporal: options of `gpuprov rollout` and `gpuprov fleet worker`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gpuprov.cli.habits import combine, take
from gpuprov.rollout.temporal.connect import Connection, check_installed

if TYPE_CHECKING:
    from gpuprov.rollout.base import Engine

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)
C = TypeVar("C", bound=Callable[..., Any])


# Add --address and the other options for a Temporal server; the command receives them as `connection`.
temporal = combine(
    click.option(
        "--address", default="", metavar="HOST:PORT", help="Address of the Temporal server ($TEMPORAL_ADDRESS)."
    ),
    click.option(
        "--namespace", default="", metavar="NAME", help="Temporal namespace ($TEMPORAL_NAMESPACE, or default)."
    ),
    click.option("--folder", type=FOLDER, help="Folder for fleets, policies and results of roll-outs on Temporal."),
    click.option("--tls-ca", type=FILE, help="CA certificates that the server's certificate must be signed by."),
    click.option("--tls-cert", type=FILE, help="Client certificate, for mutual TLS."),
    click.option("--tls-key", type=FILE, help="Key of the client certificate."),
    click.option("--tls-name", default="", metavar="NAME", help="Server name to expect in the server's certificate."),
    click.option(
        "--payload-key",
        "payload_keys",
        type=FILE,
        multiple=True,
        help="Key for payloads kept by Temporal; may be repeated: the first encrypts, all decrypt.",
    ),
    take(Connection, "connection"),
)


def engine(command: C) -> C:
    """Add --engine, and the options of Temporal."""
    choice = click.option(
        "--engine",
        type=click.Choice(["embedded", "temporal"]),
        default="embedded",
        show_default=True,
        help="What runs the roll-out: this machine, or workers that Temporal directs.",
    )
    return choice(temporal(command))


def choose_engine(connection: Connection) -> Engine:
    """Return the engine that the options name. Raises GpuprovError if its SDK is not installed."""
    if connection.engine == "temporal":
        check_installed()
        from gpuprov.rollout.temporal.engine import Temporal
        from gpuprov.rollout.temporal.files import default_folder

        return Temporal(connection, connection.folder or default_folder())
    for name, value in connection._asdict().items():
        if value and name != "engine":
            raise click.UsageError(f"--{name.replace('_keys', '_key').replace('_', '-')} goes with --engine temporal")
    from gpuprov.rollout.embedded import Embedded

    return Embedded()
