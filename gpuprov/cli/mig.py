"""The commands `gpuprov mig ...`: parse, call, return the exit code."""

from typing import Any

import click

from gpuprov.cli import options
from gpuprov.cli.sections import Group


@click.group(cls=Group)
def mig() -> None:
    """Show which MIG instances fit on a GPU model. Contacts no host.

    \b
    Example: gpuprov mig fit --gpu H100-SXM5-80GB 1g.10gb=2 2g.20gb 3g.40gb
    """


@mig.command(short_help="Place instances on a GPU, or say what fits.")
@click.argument("words", metavar="PROFILE[@SLICE][=COUNT]...", nargs=-1, required=True)
@options.gpu
@click.option("--driver", default="", metavar="VERSION", help="Also judge for this driver branch or version.")
@options.json_flag
@options.common
def fit(words: tuple[str, ...], gpu: str, driver: str, as_json: bool, **_given: Any) -> int:
    """Show where MIG instances are placed on a GPU, or why they do not fit and what does (exit code 2).

    \b
    Example: gpuprov mig fit --gpu A100-SXM4-80GB 3g.40gb@4 1c.3g.40gb=3
    """
    from gpuprov.hardware.mig import command

    return command.show_fit(gpu, words, driver, as_json=as_json)


@mig.command(short_help="List the full layouts of a GPU.")
@options.gpu
@options.json_flag
@options.common
def layouts(gpu: str, as_json: bool, **_given: Any) -> int:
    """List every full layout of a GPU: those to which no instance can be added.

    \b
    Example: gpuprov mig layouts --gpu RTX-PRO-6000-SE
    """
    from gpuprov.hardware.mig import command

    return command.show_layouts(gpu, as_json=as_json)
