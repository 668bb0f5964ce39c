"""Options of commands that take packages from a bundle."""

from pathlib import Path

import click

from gpuprov.cli.options import C


def bundle(command: C) -> C:
    """Add --bundle and --signers: packages brought here, and the keys that they are trusted by."""
    command = click.option(
        "--signers",
        type=click.Path(dir_okay=False, path_type=Path),
        default="/etc/gpuprov/allowed_signers",
        show_default=True,
        help="With --bundle: keys that may sign it, in ssh-keygen's allowed signers format.",
    )(command)
    return click.option(
        "--bundle",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIR",
        help="Take packages from this folder, written by gpuprov bundle, and from nowhere else.",
    )(command)
