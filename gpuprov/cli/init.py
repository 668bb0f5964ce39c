"""The command `gpuprov init`: parse, call, return the exit code."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuprov.cli import complete, habits, options
from gpuprov.cli.sections import Command, Named

if TYPE_CHECKING:
    from gpuprov.fleet.specs import Fleet
    from gpuprov.init import Draft

YES = click.Choice(["yes", "no"])
# Those that a recipe leaves open.
WITH_RECIPE = {"hosts", "user", "reboot"}
READ = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(cls=Command, short_help="Write a first inventory from answers, hosts, Slurm or Kubernetes.")
@click.option("-o", "--out", type=Named(), default=Path("inventory.yaml"), show_default=True, help="The file to write.")
@click.option("--force", is_flag=True, help="Replace the file, if it is there.")
@click.option(
    "--from-hosts",
    metavar="HOST,...",
    shell_complete=complete.hosts,
    help="Read these hosts, as export does; with -i, hosts or groups of it.",
)
@click.option(
    "--from-slurm", type=READ, multiple=True, metavar="FILE", help="Read gres.conf, slurm.conf or both; repeatable."
)
@click.option(
    "--recipe",
    metavar="NAME",
    shell_complete=complete.recipes,
    help="Write the recipe of this name, for --hosts or hosts that are asked for; list: show all.",
)
@click.option("--from-kubernetes", type=READ, metavar="FILE", help="Read the output of kubectl get nodes -o json.")
@click.option(
    "--hosts",
    metavar="HOST,...",
    help="Ask nothing: these hosts, ranges allowed; other answers come from options or defaults.",
)
@click.option(
    "--gpu", metavar="MODEL[:COUNT]", shell_complete=complete.models, help="GPUs of each host; none: not known."
)
@click.option("--count", metavar="N", help="GPUs in each host.")
@click.option("--driver", metavar="VERSION", help="Driver: any, a branch, or a version.")
@click.option("--nvswitch", type=YES, help="Whether the GPUs are connected by NVSwitches.")
@click.option("--engines", metavar="NAME,...", help="Container engines: docker, containerd, crio, podman, or none.")
@click.option("--reboot", type=YES, help="Whether apply may reboot a host, once, when a change needs it.")
@options.inventories("sources", "Where --from-hosts finds how to reach them; repeatable.")
@options.reaching
@options.read_limit
@options.reading
@options.json_flag
def init(
    *,
    out: Path,
    force: bool,
    from_hosts: str | None,
    from_slurm: tuple[Path, ...],
    from_kubernetes: Path | None,
    inventory: options.InventoryOptions,
    recipe: str | None,
    timeout: float,
    as_json: bool,
    **given_answers: Any,
) -> int:
    """Write a first inventory, from questions or from what is already known about hosts. Changes no host.

    Each line says what it means; what was not taken over is listed with the reason. The file is checked before it is
    written.

    \b
    Example: gpuprov init
             gpuprov init --hosts 'gpu[01:08]' --user admin --gpu H100-SXM5-80GB:8 --driver 580
             gpuprov init --recipe hgx-h100-infiniband --hosts 'gpu[01:08]'
             gpuprov init --from-hosts gpu01,gpu02 -u admin -K
             gpuprov init --from-slurm /etc/slurm/slurm.conf --from-slurm /etc/slurm/gres.conf
             kubectl get nodes -o json > nodes.json && gpuprov init --from-kubernetes nodes.json
    """
    from gpuprov.core import terminal
    from gpuprov.core.errors import CODES, GpuprovError
    from gpuprov.init import judged
    from gpuprov.report.files import check_writable, write_atomic

    given = [
        name
        for name, source in (("hosts", from_hosts), ("slurm", from_slurm), ("kubernetes", from_kubernetes))
        if source
    ]
    answers = habits.keep_given(given_answers)
    if recipe == "list":
        from gpuprov.report import specs

        return specs.show_catalog("recipes", None, as_json=as_json)
    _require_one_origin(given, answers, recipe)
    _refuse_reaching(given, inventory)
    if not given and inventory.user:
        answers["user"] = inventory.user
    if out.is_file() and not force:
        raise GpuprovError(f"{out} exists already", "name another file with --out, or replace it with --force")
    check_writable(out)
    draft = (
        _draft_from_files(from_slurm, from_kubernetes)
        or (_draft_from_hosts(from_hosts, inventory, timeout) if from_hosts is not None else None)
        or _draft_from_answers(answers, recipe)
    )
    text, fleet = judged(draft)
    write_atomic(out, text)
    for warning in fleet.warnings:
        terminal.progress(str(warning).replace(warning.origin.file, str(out)) if warning.origin else str(warning))
    _tell(out, draft, fleet, as_json=as_json)
    return CODES["unreachable" if draft.unreached else "ok"]


def _require_one_origin(given: list[str], answers: dict[str, str], recipe: str | None) -> None:
    """Raise UsageError if the spec would come from several places."""
    if recipe is not None and (given or set(answers) - WITH_RECIPE):
        other = f"from-{given[0]}" if given else min(set(answers) - WITH_RECIPE)
        raise click.UsageError(f"--recipe and --{other}: one of them; beside a recipe go --hosts, --user and --reboot")
    if given and answers:
        raise click.UsageError(f"--{next(iter(answers))} answers a question, and --from-{given[0]} asks none")
    if len(given) > 1:
        raise click.UsageError(f"--from-{given[0]} and --from-{given[1]}: one of them; write two files and name both")


def _tell(out: Path, draft: Draft, fleet: Fleet, *, as_json: bool) -> None:
    """Print what was written, which recipes fit these hosts, and the next command."""
    from gpuprov.core import terminal
    from gpuprov.init import recipes

    fits = recipes.fitting(draft)
    if as_json:
        terminal.result(_format_json(out, draft, fleet, fits))
        return
    notes = len(draft.notes) + sum(len(group.notes) for group in draft.groups)
    hosts = len(fleet.pairs) + len(fleet.unmanaged)
    suffix = f", {notes} note{'s' if notes != 1 else ''} in it of what was not taken over" if notes else ""
    terminal.result(f"{out}: {hosts} host{'s' if hosts != 1 else ''} valid{suffix}")
    for group, keys in fits.items():
        terminal.progress(f"{group}: recipes for these GPUs: {', '.join(keys)}; gpuprov init --recipe NAME writes one")
    terminal.result(f"next: gpuprov {draft.verb} {shlex.quote(str(out))}")


def _refuse_reaching(given: list[str], inventory: options.InventoryOptions) -> None:
    """Raise UsageError if options say how to reach hosts, and none is read."""
    if given and given != ["hosts"]:
        options.reaches_nobody(f"--from-{given[0]}", inventory)
    elif not given:
        options.reaches_nobody("a question", inventory._replace(user=None))


def _draft_from_files(from_slurm: tuple[Path, ...], from_kubernetes: Path | None) -> Draft | None:
    """Return what Slurm or Kubernetes knows of the hosts; None if neither is named."""
    from gpuprov.init import kubernetes, slurm

    if from_slurm:
        return slurm.draft(from_slurm)
    return kubernetes.draft(from_kubernetes) if from_kubernetes else None


def _draft_from_answers(answers: dict[str, str], recipe: str | None) -> Draft:
    from gpuprov.init import questions, recipes

    if recipe is not None:
        recipes.require_recipe(recipe)
    if "hosts" not in answers:
        options.must_be_able_to_ask(
            "gpuprov init asks for hosts and GPUs",
            "name them with --hosts, or where they are known from: --from-hosts HOST,..., --from-slurm FILE, "
            "--from-kubernetes FILE",
        )
    return recipes.draft(recipe, answers) if recipe is not None else questions.draft(answers)


def _format_json(out: Path, draft: Draft, fleet: Fleet, fits: dict[str, list[str]]) -> str:
    from gpuprov.core.safe_parse import format_document

    notes = [*draft.notes, *(note for group in draft.groups for note in group.notes)]
    document = {
        "file": str(out),
        "hosts": [raw.name for raw, _ in fleet.pairs],
        "notes": notes,
        "warnings": [str(warning) for warning in fleet.warnings],
        "recipes": fits,
        "unreached": draft.unreached,
        "next": draft.verb,
    }
    return format_document(document)


def _draft_from_hosts(text: str, inventory: options.InventoryOptions, timeout: float) -> Draft:
    from gpuprov.core import terminal
    from gpuprov.export import export
    from gpuprov.init import hosts

    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise click.UsageError("--from-hosts names no host")
    narrowed = {"limit": ":".join(names)} if inventory.sources else {"sources": (",".join(names) + ",",)}
    raw = options.raw_hosts(inventory._replace(**narrowed))
    with terminal.Progress([host.name for host in raw], "reading", quiet=True):
        exported = export(raw, timeout=timeout, pace=options.pace(inventory))
    for line in exported.unreachable:
        terminal.warning(line)
    return hosts.draft(exported, [host.name for host in raw])
