"""The commands that tell what gpuprov knows: explain, catalog, schema. They need no inventory and reach no host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gpuprov.cli import options


@click.command()
@click.argument("words", nargs=-1)
@options.recorded
@options.json_flag
@options.common
def explain(words: tuple[str, ...], records: tuple[Path, ...], as_json: bool, **_given: Any) -> int:
    """Explain a capability, a field, a check, an exit code, or a symptom; or each symptom that a record of a host holds.

    \b
    Example: gpuprov explain nvidia_driver.version
             gpuprov explain 802
             gpuprov explain "Driver/library version mismatch"
             gpuprov explain --from nvidia-bug-report.log.gz
    """
    from gpuprov import explain as explaining
    from gpuprov.report import specs

    if bool(words) == bool(records):
        raise click.UsageError("name what to explain, or a record with --from: one of the two")
    if records:
        found = [one for record in options.read_records(records) for one in explaining.in_record(record)]
        specs.show_explanations(found, as_json=as_json)
        return 0
    specs.show_explanations(explaining.explain(" ".join(words)), as_json=as_json)
    return 0


@click.command()
@click.argument("table", type=click.Choice(["gpus", "drivers", "cuda", "mig"]))
@click.argument("word", required=False)
@options.json_flag
@options.common
def catalog(table: str, word: str | None, as_json: bool, **_given: Any) -> int:
    """Show what gpuprov knows of GPUs, driver branches, CUDA and MIG, with sources. WORD filters the rows.

    \b
    Example: gpuprov catalog gpus H100
    """
    from gpuprov.report import specs

    return specs.show_catalog(table, word, as_json=as_json)


@click.command()
def schema() -> int:
    """Print the JSON Schema of the `gpuprov` variable, for editors.

    \b
    Example: gpuprov schema > gpuprov.schema.json
    """
    from gpuprov import console
    from gpuprov.report import specs

    console.result(specs.schema_text())
    return 0
