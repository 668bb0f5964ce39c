"""--engine and how Temporal is reached: options of `gpuprov rollout` and `gpuprov worker`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from gpuprov.rollout.base import Engine
    from gpuprov.rollout.temporal.connect import Connection

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)
C = TypeVar("C", bound=Callable[..., Any])
OF_TEMPORAL = ("address", "namespace", "folder", "tls_ca", "tls_cert", "tls_key", "tls_name", "payload_key")


def temporal(command: C) -> C:
    """--address and what else reaches a Temporal server."""
    decorators = (
        click.option("--address", default="", metavar="HOST:PORT", help="Temporal's; else $TEMPORAL_ADDRESS."),
        click.option(
            "--namespace", default="", metavar="NAME", help="Temporal's; else $TEMPORAL_NAMESPACE, or default."
        ),
        click.option(
            "--folder", type=FOLDER, help="Where fleets, policies and results of Temporal's roll-outs are kept."
        ),
        click.option("--tls-ca", type=FILE, help="Certificates that sign Temporal's."),
        click.option("--tls-cert", type=FILE, help="This side's certificate, for mutual TLS."),
        click.option("--tls-key", type=FILE, help="Its key."),
        click.option("--tls-name", default="", metavar="NAME", help="The name in Temporal's certificate."),
        click.option(
            "--payload-key", type=FILE, multiple=True, help="Key that encrypts what Temporal keeps; the first encrypts."
        ),
    )
    for decorator in reversed(decorators):
        command = decorator(command)
    return command


def engine(command: C) -> C:
    """--engine, and the options of Temporal."""
    choice = click.option(
        "--engine",
        type=click.Choice(["embedded", "temporal"]),
        default="embedded",
        show_default=True,
        help="What carries the roll-out out: this machine, or workers that Temporal directs.",
    )
    return choice(temporal(command))


def connection(given: dict[str, Any]) -> Connection:
    """How Temporal is reached. Raises GpuprovError where its SDK is not installed."""
    from gpuprov.rollout.temporal import connect

    connect.check_installed()
    names = ("address", "namespace", "tls_ca", "tls_cert", "tls_key", "tls_name")
    return connect.Connection(**{name: given[name] for name in names}, payload_keys=given["payload_key"])


def chosen(given: dict[str, Any]) -> Engine:
    """The engine that the options name."""
    if given["engine"] == "temporal":
        reached = connection(given)
        from gpuprov.rollout.temporal.engine import Temporal
        from gpuprov.rollout.temporal.files import default_folder

        return Temporal(reached, given["folder"] or default_folder())
    for name in OF_TEMPORAL:
        if given[name]:
            raise click.UsageError(f"--{name.replace('_', '-')} goes with --engine temporal")
    from gpuprov.rollout.embedded import Embedded

    return Embedded()
