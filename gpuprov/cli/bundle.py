"""The command bundle: parse, call, print, return the exit code."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from gpuprov.cli import options

FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command(short_help="Write signed bundles for hosts that pull.")
@options.inventory
@click.option("--pull", is_flag=True, help="A bundle for each host, which fetches it, judges it and does it by itself.")
@click.option("--key", required=True, type=FILE, help="The ssh key that signs; its .pub, where an agent has the key.")
@click.option("--wheels", required=True, type=FOLDER, metavar="DIR", help="Wheels of gpuprov and of what it needs.")
@click.option("-o", "--out", required=True, type=FOLDER, help="Folder to write, which a server gives to the hosts.")
@click.option("--source", required=True, metavar="PLACE", help="Where hosts find that folder: https://..., or a path.")
@click.option(
    "--results", default="", metavar="PLACE", help="Where results go: https://... (PUT), a path, or rsync:DEST."
)
@click.option(
    "--mode",
    type=click.Choice(["report", "apply"]),
    default="report",
    show_default=True,
    help="Report what differs, or apply.",
)
@click.option("--reboot", is_flag=True, help="Permit one reboot for this bundle, whatever the spec says.")
@click.option(
    "--expires", type=click.FloatRange(0.01, 3650), default=30.0, show_default=True, help="Days until it expires."
)
@click.option("--serial", type=click.IntRange(1, (1 << 53) - 1), help="Higher than any before; else the time is it.")
def bundle(sources: tuple[str, ...], pull: bool, **given: Any) -> int:
    """Write a signed bundle for each host, the wheels that it needs, and user-data of cloud-init that makes it a puller.

    The host is known by the variables pull_machine_id, pull_product_uuid, pull_product_serial or pull_declared. It refuses what is not
    signed by the key, is another host's, has expired, or is older than what it had, before anything is unpacked.

    \b
    Example: gpuprov bundle inventory.yaml --pull --key bundle_key --wheels wheels --out www \\
                 --source https://mirror.example/gpuprov --results https://mirror.example/results
             gpuprov fold results
    """
    from gpuprov import console
    from gpuprov.pull import bundles
    from gpuprov.slices import frozen

    if not pull:
        raise click.UsageError("say what the bundle is for: --pull")
    if given["reboot"] and given["mode"] != "apply":
        raise click.UsageError("--reboot goes with --mode apply")
    fleet = options.load(
        sources, {**given, "user": None, "ask_become_pass": False}, also=(*frozen.DOMAINS, *bundles.IDENTITY)
    )
    names = ("out", "key", "wheels", "source", "results", "mode", "reboot")
    chosen = bundles.Options(
        **{name: given[name] for name in names}, days=given["expires"], serial=given["serial"] or 0
    )
    made = bundles.make(fleet, chosen, time.time())
    for host, files in made.files.items():
        console.warning(
            f"{host}: its spec names files that no bundle carries; put them on the host, at the same place: {', '.join(files)}"
        )
    console.progress(f"{made.hosts} bundles in {chosen.out}; serial {made.serial}; they expire at {made.expires_at}")
    return 0
