"""The command bundle: parse, call, print, return the exit code."""

import time
from pathlib import Path
from typing import Any

import click

from gpuprov.cli import habits, options
from gpuprov.cli.sections import Command, Written
from gpuprov.core.sanitize import counted

FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)
OF_PULL = ("wheels", "source", "results", "mode", "reboot", "serial")


@click.command(
    cls=Command, short_help="Write signed bundles: packages for hosts without internet, or jobs for hosts that pull."
)
@options.inventory
@click.option(
    "--pull", is_flag=True, help="Write a bundle for each host, which the host fetches, judges and applies by itself."
)
@click.option("--key", required=True, type=FILE, help="The ssh key to sign with; its .pub where an agent has the key.")
@click.option("-o", "--out", required=True, type=Written(folder=True), help="Folder to write.")
@click.option(
    "--expires",
    metavar="DAYS",
    type=click.FloatRange(0.01, 3650),
    default=30.0,
    show_default=True,
    help="Days until it expires.",
)
@click.option(
    "--accept-licence",
    "accepted",
    multiple=True,
    type=click.Choice(["nvidia-sdk", "nvidia-doca", "unknown"]),
    help="Packages: state that the site may copy what is under this licence.",
)
@options.reaching
@click.option(
    "--wheels",
    type=FOLDER,
    metavar="DIR",
    help="With --pull: folder with the wheels of gpuprov and of its dependencies.",
)
@click.option("--source", metavar="PLACE", help="With --pull: where hosts find the bundle: https://..., or a path.")
@click.option(
    "--results", metavar="PLACE", help="With --pull: where results go: https://... (PUT), a path, or rsync:DEST."
)
@click.option(
    "--mode", type=click.Choice(["report", "apply"]), help="With --pull: report what differs (default), or apply."
)
@click.option("--reboot", is_flag=True, help="With --pull: permit one reboot for this bundle, whatever the spec says.")
@click.option(
    "--serial",
    metavar="N",
    type=click.IntRange(1, (1 << 53) - 1),
    help="With --pull: serial number, higher than any before (the time).",
)
def bundle(inventory: options.InventoryOptions, pull: bool, **given: Any) -> int:
    """Write what hosts without internet access need, or, with --pull, what hosts need that apply their spec by
    themselves.

    Without --pull: the packages that the specs need with all that they depend on, resolved now by the hosts' own apt,
    dnf or zypper, at exact versions, in a signed repository for each release, and the files that specs name by their
    address; gpuprov apply --bundle DIR takes all of it from there and from nowhere else. A bundle that is in DIR is
    replaced, and what it has is not fetched again.

    With --pull: a signed bundle for each host, the wheels that it needs, and user-data of cloud-init that makes it a
    puller. The host is known by the variables pull_machine_id, pull_product_uuid, pull_product_serial or pull_declared.
    It refuses what is not signed by the key, is another host's, has expired, or is older than what it had, before
    anything is unpacked.

    \b
    Example: gpuprov bundle staging.yaml --key bundle_key --out usb/bundle
             gpuprov apply inventory.yaml --bundle usb/bundle --signers allowed_signers
             gpuprov bundle inventory.yaml --pull --key bundle_key --wheels wheels --out www \\
                 --source https://mirror.example/gpuprov --results https://mirror.example/results
             gpuprov fleet fold results
    """
    return _write_jobs(inventory, **given) if pull else _write_packages(inventory, **given)


def _write_packages(inventory: options.InventoryOptions, **given: Any) -> int:
    """Write packages, for gpuprov apply --bundle."""
    from gpuprov.bundle import bundles, licences
    from gpuprov.catalog.licences import format_source
    from gpuprov.core import terminal

    if wrong := [name for name in OF_PULL if given[name]]:
        raise click.UsageError(
            f"--{wrong[0]} goes with --pull; without it, a bundle holds packages for gpuprov apply --bundle"
        )
    fleet = options.load(inventory)
    chosen = bundles.Options(
        out=given["out"], key=given["key"], days=given["expires"], accepted=given["accepted"], forks=inventory.forks
    )
    made = bundles.make(fleet, chosen, time.time())
    for licence in (licences.classes()[key] for key in made.licences):
        terminal.warning(f"not free, {licence.key}: {licence.told} ({format_source(licence)})")
    for each in made.manifest.repositories:
        terminal.progress(f"{each.folder}: {counted(len(each.packages), 'package')}")
    if made.kept:
        terminal.progress(f"{made.kept} files are those of the bundle before, and were not fetched again")
    size = sum(file.size for file in made.manifest.files.values())
    terminal.progress(
        f"{chosen.out}: {size / 1e6:.0f} MB, for {counted(len(made.manifest.specs), 'spec')}; expires at "
        f"{made.manifest.expires_at}"
    )
    return 0


def _write_jobs(inventory: options.InventoryOptions, accepted: tuple[str, ...], expires: float, **given: Any) -> int:
    """Write jobs, for hosts that pull."""
    from gpuprov.core import terminal
    from gpuprov.jobs import frozen
    from gpuprov.pull import bundles

    options.reaches_nobody("bundle --pull", inventory)
    if accepted:
        raise click.UsageError("--accept-licence goes with a bundle of packages: leave out --pull")
    if missing := [name for name in ("wheels", "source") if not given[name]]:
        raise click.UsageError(f"--pull needs --{missing[0]}")
    chosen = bundles.Options(**habits.keep_given(given), days=expires)
    if chosen.reboot and chosen.mode != "apply":
        raise click.UsageError("--reboot goes with --mode apply")
    fleet = options.load(inventory, also=(*frozen.DOMAINS, *bundles.IDENTITY))
    made = bundles.make(fleet, chosen, time.time())
    for host, files in made.files.items():
        terminal.warning(
            f"{host}: its spec names files that no bundle carries; put them on the host, at the same place: "
            f"{', '.join(files)}"
        )
    terminal.progress(f"{made.hosts} bundles in {chosen.out}; serial {made.serial}; they expire at {made.expires_at}")
    return 0
