"""The command `gpuprov bake`: parse, call, print, return the exit code."""

import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click

from gpuprov.bake import files
from gpuprov.cli import options
from gpuprov.cli.sections import Command, Written

FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command(cls=Command, short_help="Bring an image to a host's spec; its first boot does the rest.")
@options.inventory
@click.option(
    "--root",
    required=True,
    type=FOLDER,
    help="Folder of the image: a chroot, as debootstrap or mkosi make it; / is the machine that this runs on.",
)
@click.option(
    "--clean-machine",
    is_flag=True,
    help="With --root /: also remove the machine id, random seed, ssh host keys and journals.",
)
@click.option(
    "--wheels",
    required=True,
    type=FOLDER,
    help="Folder with the wheels of gpuprov and what it needs, for the image's Python.",
)
@options.act_limit
@click.option("--log-dir", type=Written(folder=True), help="Folder for the log of the run.")
@options.json_flag
def bake(inventory: options.InventoryOptions, root: Path, wheels: Path, as_json: bool, **given: Any) -> int:
    """Bring the image in a folder to the spec of one host, as far as no hardware is needed; its first boot does the
    rest.

    --limit names the host whose spec it is. Needs root. Packages, kernel modules for the image's kernels, configuration
    and units are applied in a chroot, which sees the GPUs that the spec names, whatever this machine has. Nothing is
    started. Then what belongs to one machine is removed. On the first boot of each machine a unit judges the hardware,
    applies what is left, verifies and reports. --root / bakes the machine that this runs on, such as Packer's: refused
    if it has a task; only what gpuprov left is removed. Exit codes: 0 baked; 1 a check fails, or something of a host is
    left; 3 not baked.

    \b
    Example: gpuprov bake inventory.yaml --limit gpu001 --root /srv/image --wheels wheels
    """
    if own := _is_own(root, clean=given["clean_machine"]):
        given["log_dir"] = given["log_dir"] or Path(files.LOG)
    from gpuprov.bake import own_root, place, run, text
    from gpuprov.bake.model import Options
    from gpuprov.core import terminal
    from gpuprov.jobs import frozen
    from gpuprov.plan.show import Terminal

    root = place.check(root)
    if own:
        own_root.refuse_at_work()
    place.enter()
    with own_root.bound() if own else nullcontext(root) as folder:
        fleet = options.load(inventory, also=frozen.DOMAINS)
        options.ask_something(fleet, None)
        if len(fleet.pairs) != 1:
            raise click.UsageError(
                f"an image has the spec of one host, and {len(fleet.pairs)} are named: choose one with --limit"
            )
        chosen = Options(root=folder, wheels=wheels, verbose=inventory.verbose, own_root=own, **given)
        made = run.bake(fleet, chosen, Terminal(verbose=inventory.verbose))
    terminal.result(text.as_json(made) if as_json else text.as_text(made, verbose=inventory.verbose))
    return made.code


def _is_own(root: Path, *, clean: bool) -> bool:
    """Return whether the root is this machine's own; then gpuprov's cache is kept out of it."""
    own = os.path.samefile(root, "/")
    if own:
        os.environ["XDG_CACHE_HOME"] = files.CACHE  # modules that are imported now read the catalogue through it
    elif clean:
        raise click.UsageError("--clean-machine is for --root /: of a folder the identity is always removed")
    return own
