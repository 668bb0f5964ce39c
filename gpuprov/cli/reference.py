"""The commands that show gpuprov's knowledge: explain, catalog, schema. They need no inventory and contact no host."""

import sys
from pathlib import Path
from typing import Any

import click

from gpuprov.cli import complete, options
from gpuprov.cli.from_records import read_records
from gpuprov.cli.habits import combine
from gpuprov.cli.sections import Command


@click.command(cls=Command, short_help="Explain a field, a check, an exit code or an error message.")
@click.argument("words", nargs=-1, shell_complete=complete.words)
@options.recorded
@options.json_flag
@options.common
def explain(words: tuple[str, ...], records: tuple[Path, ...], as_json: bool, **_given: Any) -> int:
    """Explain a capability, a field, a check, an exit code, or a symptom; or each symptom that a record of a host
    holds, or a log on standard input (-).

    \b
    Example: gpuprov explain nvidia_driver.version
             gpuprov explain 802
             gpuprov explain "Driver/library version mismatch"
             gpuprov explain --from nvidia-bug-report.log.gz
             dmesg | gpuprov explain -
    """
    from gpuprov import explain as explaining
    from gpuprov.core import terminal
    from gpuprov.report import specs

    if bool(words) == bool(records):
        raise click.UsageError("name what to explain, - for standard input, or a record with --from: one of them")
    if records:
        answers = explaining.in_records(read_records(records))
    elif words == ("-",):
        answers = explaining.in_stream(sys.stdin.buffer if sys.stdin else None, terminal.progress)
    else:
        root = click.get_current_context().find_root().command
        verbs = root.commands if isinstance(root, click.Group) else {}
        does = {name: verb.get_short_help_str(200) for name, verb in verbs.items() if not verb.hidden}
        answers = explaining.explain(" ".join(words), does)
    specs.show_explanations(answers, as_json=as_json, text=" ".join(words))
    return 0


# Files for Prometheus and Grafana, by what `gpuprov catalog` calls them.
MONITORING = {"alerts": "alerts.yaml", "dashboard": "dashboard.json"}


# Generic only from click 8.2 on.
_CHOICE: Any = click.Choice


class Tables(_CHOICE):  # type: ignore[misc]
    """The tables; the refusal of another word names the nearest one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value in self.choices:
            return value
        from difflib import get_close_matches

        near = get_close_matches(str(value).casefold(), self.choices, n=1)
        fix = f'did you mean "{near[0]}"?' if near else f"allowed: {', '.join(self.choices)}"
        return self.fail(f'there is no table "{value}"; {fix}', param, ctx)


@click.command(cls=Command, short_help="Show what gpuprov knows about GPUs, drivers, CUDA, MIG, and recipes.")
@click.argument("table", type=Tables(["gpus", "drivers", "cuda", "mig", "recipes", *MONITORING]))
@click.argument("word", required=False, shell_complete=complete.rows)
@options.json_flag
@options.common
def catalog(table: str, word: str | None, as_json: bool, **_given: Any) -> int:
    """Show what gpuprov knows about GPUs, driver branches, CUDA and MIG, and its recipes, with sources. WORD filters
    the rows.

    alerts and dashboard are files for Prometheus and Grafana, by the metrics that --prometheus of verify and health
    writes.

    \b
    Example: gpuprov catalog gpus H100
             gpuprov catalog alerts > /etc/prometheus/rules/gpuprov.yaml
    """
    from gpuprov.core import terminal
    from gpuprov.report import specs

    if table in MONITORING:
        if word or as_json:
            raise click.UsageError(f"catalog {table} prints a file: leave out {'WORD' if word else '--json'}")
        folder = Path(specs.__file__).with_name("monitoring")
        terminal.result((folder / MONITORING[table]).read_text(encoding="utf-8").rstrip("\n"))
        return 0
    return specs.show_catalog(table, word, as_json=as_json)


# Files that have a schema of their own, by the options of `gpuprov schema`: the type, the schema's title, and the help.
FILES = {
    "rollout": (
        "gpuprov.fleet.policy.policy.Policy",
        "gpuprov roll-out policy",
        "Schema of a roll-out's policy.",
    ),
    "bundle": (
        "gpuprov.pull.model.Manifest",
        "gpuprov bundle --pull, manifest.json",
        "Of the manifest of gpuprov bundle --pull.",
    ),
    "fleet": ("gpuprov.jobs.model.Fleet", "gpuprov fleet", "Of what gpuprov fleet freeze writes."),
    "job": ("gpuprov.jobs.model.Job", "gpuprov job", "Of what gpuprov fleet slice writes."),
    "result": ("gpuprov.jobs.model.HostResult", "gpuprov result", "Of a result of gpuprov fleet work."),
    "beat": (
        "gpuprov.jobs.model.Beat",
        "gpuprov fleet work, a line of standard output",
        "Of a line that gpuprov fleet work prints.",
    ),
    "fold": ("gpuprov.jobs.shown.FoldedReport", "gpuprov fleet fold --json", "Of gpuprov fleet fold --json."),
    "plan": ("gpuprov.plan.saved.Saved", "gpuprov saved plan", "Of a saved plan."),
}
# Commands whose --json is the one document, and its type; the key `verb` says which it is.
VERBS = {
    "verify": "gpuprov.report.as_json.Verified",
    "plan": "gpuprov.plan.document.Planned",
    "apply": "gpuprov.apply.document.Applied",
    "rehearse": "gpuprov.rehearse.document.RehearsedDocument",
    "health": "gpuprov.report.health.Health",
    "repair": "gpuprov.repair.document.RepairDocument",
    "drift": "gpuprov.drift.document.Drift",
    "accept": "gpuprov.accept.document.Accepted",
}
# Commands whose --json is a document of its own, and its type.
DOCUMENTS = {
    "check": "gpuprov.report.check.Check",
    "topology": "gpuprov.hardware.topology.document.Topology",
    "show": "gpuprov.report.listing.Shown",
    "drain": "gpuprov.fleet.drain.many.Drained",
    "enroll": "gpuprov.fleet.enroll.Enrolled",
    "bake": "gpuprov.bake.model.BakedDocument",
    "rollout-status": "gpuprov.rollout.status.Status",
}
# Commands that print the document of another.
SAME = {"rollback": "apply", "undrain": "drain"}


def document_schema(command: str) -> str:
    """Return the JSON Schema of what a command prints with --json."""
    from functools import reduce
    from operator import or_

    from gpuprov.spec.schema import format_document_schema

    command = SAME.get(command, command)
    if command in DOCUMENTS:
        return format_document_schema(_load(DOCUMENTS[command]), f"gpuprov {command.replace('-', ' ')} --json")
    kinds = reduce(or_, map(_load, VERBS.values()))
    return format_document_schema(kinds, f"--json of gpuprov {', '.join(VERBS)}")


def _load(name: str) -> type:
    from importlib import import_module

    module, _, kind = name.rpartition(".")
    return getattr(import_module(module), kind)  # type: ignore[no-any-return]


def file_schema(kind: str) -> str:
    """Return the JSON Schema of one of FILES."""
    from gpuprov.spec.schema import format_document_schema

    name, title, _ = FILES[kind]
    return format_document_schema(_load(name), title)


@click.command(cls=Command, short_help="Print a JSON Schema: of the spec, or of a file.")
@click.option("--inventory", "kind", flag_value="inventory", help="Schema of a whole inventory file in YAML.")
@combine(
    *(click.option(f"--{name}", "kind", flag_value=name, help=about) for name, (_, _, about) in FILES.items()),
)
@click.option(
    "--of",
    "command",
    metavar="COMMAND",
    type=click.Choice([*VERBS, *DOCUMENTS, *SAME]),
    help=f"Of what this command prints with --json: {', '.join([*VERBS, *DOCUMENTS, *SAME])}.",
)
def schema(kind: str | None, command: str | None) -> int:
    """Print a JSON Schema: of the `gpuprov` variable, a whole inventory, a roll-out's policy, or what gpuprov writes or
    prints.

    \b
    Example: gpuprov schema > gpuprov.schema.json
             gpuprov schema --inventory > inventory.schema.json
             gpuprov schema --of verify > document.schema.json
    """
    from gpuprov.core import terminal
    from gpuprov.report import specs

    if kind and command:
        raise click.UsageError(f"--{kind} and --of: one of them")
    if command:
        terminal.result(document_schema(command))
    elif kind in FILES:
        terminal.result(file_schema(kind))
    else:
        terminal.result(specs.inventory_schema_text() if kind else specs.schema_text())
    return 0
