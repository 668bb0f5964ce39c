"""The commands of `gpuprov fleet` that read and write files: parse, call, print, return the exit code."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuprov.cli import complete, habits, options
from gpuprov.cli.sections import Command, Written

if TYPE_CHECKING:
    from gpuprov.jobs.model import Job
    from gpuprov.jobs.work import Options
    from gpuprov.plan.read import Pair
    from gpuprov.report.files import ReportFiles

FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER, WRITTEN_FOLDER = click.Path(file_okay=False, path_type=Path), Written(folder=True)


@click.command(cls=Command, short_help="Write a resolved inventory to a file, without secrets.")
@options.inventory
@click.option("-o", "--out", required=True, type=Written(), help="File to write.")
@click.option(
    "--domain", "domains", multiple=True, metavar="VARIABLE", help="Also keep this host variable, to slice by."
)
def freeze(inventory: options.InventoryOptions, out: Path, domains: tuple[str, ...]) -> int:
    """Write the resolved inventory to a file, for gpuprov fleet slice. Contacts no host.

    Each spec stands once. Passwords and other secrets are left out, and named. Of variables that say nothing of a
    connection, site and rack are kept, and those that --domain names.

    \b
    Example: gpuprov fleet freeze inventory.yaml --out fleet.json
             gpuprov fleet slice fleet.json --size 50 --by rack --out jobs
    """
    from gpuprov.core import terminal
    from gpuprov.jobs import frozen, stored
    from gpuprov.report.files import check_writable

    check_writable(out)
    fleet = options.load(inventory, also=(*frozen.DOMAINS, *domains))
    made = frozen.freeze(fleet, f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}")
    stored.save(made, out)
    if secret := sorted({name for host in made.hosts for name in host.secrets}):
        terminal.progress(
            f"left out, because they are secrets: {', '.join(secret)}; gpuprov fleet work takes them again"
        )
    if fleet.unmanaged:
        terminal.progress(f"left out, because they have no spec: {_count(len(fleet.unmanaged), 'host')}")
    terminal.progress(
        f"{_count(len(made.hosts), 'host')}, {_count(len(made.specs), 'spec')} in {out}; digest {made.digest}"
    )
    return 0


@click.command("slice", cls=Command, short_help="Cut a frozen inventory into jobs.")
@click.argument("fleet", metavar="FILE", type=FILE, shell_complete=complete.files)
@click.option(
    "--size", metavar="N", type=click.IntRange(min=1), default=50, show_default=True, help="Most hosts in a job."
)
@click.option(
    "--by",
    metavar="GROUP|VARIABLE",
    default="",
    help="Never put hosts of two of these groups, or values, into one job.",
)
@click.option("-o", "--out", required=True, type=WRITTEN_FOLDER, help="Folder to write.")
@options.common
def slice_(fleet: Path, size: int, by: str, out: Path, **given: Any) -> int:
    """Cut a frozen inventory into job files, which gpuprov fleet work does on any machine that can reach the hosts.

    --by GROUP: a job has hosts of one of the groups in GROUP; --by rack: of one rack, where hosts have that variable.

    \b
    Example: gpuprov fleet slice fleet.json --size 50 --by site --out jobs
    """
    from gpuprov.core import terminal
    from gpuprov.jobs import cut, stored

    jobs = cut.cut(stored.load_fleet(fleet), size, by)
    cut.save(jobs, out)
    if given["verbose"]:
        for line in cut.describe_jobs(jobs):
            terminal.progress(line)
    hosts = sum(len(job.hosts) for job in jobs)
    terminal.progress(f"{_count(hosts, 'host')} in {_count(len(jobs), 'job')} in {out}")
    return 0


@click.command(cls=Command, short_help="Do one job: verify, plan or apply its hosts.")
@click.argument("job", metavar="JOB", type=FILE, shell_complete=complete.files)
@click.option(
    "--results",
    required=True,
    metavar="DIR",
    type=WRITTEN_FOLDER,
    help="Folder for the results, one file for each host.",
)
@click.option(
    "--act",
    type=click.Choice(["verify", "plan", "prepare", "apply"]),
    default="verify",
    show_default=True,
    help="What to do with the hosts.",
)
@click.option(
    "--run", metavar="ID", help="The run that this belongs to; hosts that have a green result of it are left out."
)
@click.option("--reboot", is_flag=True, help="Permit one reboot per host, whatever the spec says; for plan and apply.")
@click.option("--quick", is_flag=True, help="Plan from the checks alone, as gpuprov plan --quick.")
@click.option("--drain", metavar="COMMAND", help="As with gpuprov apply.")
@click.option(
    "--repair",
    type=click.IntRange(0),
    metavar="N",
    help="Before apply, repair at most so many hosts that health calls unfit until a reset or a reboot, each once "
    "in the run; the others of them are left alone.",
)
@options.break_lock
@options.act_limit
@click.option("--log-dir", type=WRITTEN_FOLDER, help="Folder for the log of an apply.")
@options.inventories("secrets", "Take the secrets that the job names from this inventory; repeatable.", "--secrets")
@click.option("--without-secrets", is_flag=True, help="Work without the secrets: keys or an agent are enough.")
@options.vault
@habits.extra_vars("Override how hosts are reached: NAME=VALUE, YAML, JSON or @FILE.")
@options.reaching
@habits.refused("-i", "--inventory", why="the hosts are those of JOB; --secrets takes secrets from an inventory")
@options.common
@habits.take(options.InventoryOptions, "inventory")
def work(
    job: Path,
    results: Path,
    run: str | None,
    secrets: tuple[str, ...],
    inventory: options.InventoryOptions,
    **given: Any,
) -> int:
    """Do one job of gpuprov fleet slice, and write each host's result as soon as it is known. Asks no questions.

    Standard output has a line of JSON at each change, and at least every ten seconds. Done again with the same --run,
    after it was killed or elsewhere, it leaves out hosts that have a green result there. What was declared stands in
    the job; secrets do not.

    \b
    Example: gpuprov fleet work jobs/job-0001.json --results results --act apply --run friday
             gpuprov fleet fold results
    """
    from gpuprov.jobs import stored
    from gpuprov.jobs import work as working
    from gpuprov.jobs.pulse import Pulse
    from gpuprov.plan.extra import new_run

    without_secrets = given.pop("without_secrets")
    chosen = working.Options(**given, run=run or new_run(), forks=inventory.forks)
    _check_act(chosen)
    loaded = stored.load_job(job)
    pairs = _read_pairs(loaded, inventory._replace(sources=secrets), without_secrets=without_secrets)
    return working.work(loaded, pairs, results, chosen, Pulse())


@click.command(cls=Command, short_help="Make one report from the results of any number of hosts.")
@click.argument("folders", metavar="DIR...", nargs=-1, required=True, type=FOLDER, shell_complete=complete.files)
@click.option(
    "--fleet", type=FILE, metavar="FILE", help="The frozen inventory: report on each of its hosts, and on no other."
)
@click.option("--run", default="", metavar="ID", help="Only results of this run.")
@options.report_files
@options.json_flag
@options.common
def fold(
    folders: tuple[Path, ...], fleet: Path | None, run: str, as_json: bool, files: ReportFiles, **given: Any
) -> int:
    """Make one report from what gpuprov fleet work wrote into these folders and those below them: the newest result of
    each host.

    With --fleet, a host without a result is reported as not done. A file that is not a result is named and left out.
    The exit code is that of apply and verify for all hosts.

    \b
    Example: gpuprov fleet fold results --fleet fleet.json --html fleet.html
             gpuprov fleet fold site-a/results site-b/results --run friday --json
    """
    from gpuprov.cli.about import page_of
    from gpuprov.jobs import fold as folding
    from gpuprov.jobs import shown, stored
    from gpuprov.report.files import check_writable

    check_writable(*files)
    frozen = stored.load_fleet(fleet) if fleet else None
    folded = folding.fold(folders, frozen, run)
    groups = {host.name: host.groups for host in frozen.hosts} if frozen else {}
    origin = page_of("fleet fold", [*folders], fleet, run)
    shown.show(folded, files, origin, groups, as_json=as_json, verbose=given["verbose"])
    return folded.tally.exit_code


def _check_act(chosen: Options) -> None:
    """Raise UsageError for an option that this act does not support."""
    of_acts = {"reboot": ("plan", "apply"), "quick": ("plan",)}
    of_acts |= {
        "drain": ("apply",),
        "repair": ("apply",),
        **dict.fromkeys(("break_lock", "log_dir"), ("prepare", "apply")),
    }
    for name, acts in of_acts.items():
        is_given = chosen.repair is not None if name == "repair" else getattr(chosen, name)
        if is_given and chosen.act not in acts:
            raise click.UsageError(f"--{name.replace('_', '-')} goes with --act {' and '.join(acts)}")


def _read_pairs(job: Job, chosen: options.InventoryOptions, *, without_secrets: bool) -> Sequence[Pair]:
    """Return the hosts of the job with their specs, with secrets and the login of this machine."""
    from gpuprov import inventory
    from gpuprov.cli.login import logged_in
    from gpuprov.fleet import specs as fleet
    from gpuprov.jobs import extra, frozen, secrets
    from gpuprov.jobs.work import check_files

    check_files(job)
    hosts = frozen.raw_hosts(job.hosts, job.specs)
    files, ask = chosen.vault_password_files, chosen.ask_vault_pass
    if chosen.sources:
        known = inventory.load(chosen.sources, vault_password_files=files, ask_vault_pass=ask).hosts
        hosts = secrets.given(hosts, job.hosts, {host.name: host for host in known})
    over = extra.over(hosts, chosen.extra_vars, vault_password_files=files, ask_vault_pass=ask)
    hosts = list(logged_in(over, chosen.user, ask=chosen.ask_become_pass))
    if not without_secrets:
        secrets.refuse_missing(hosts, job.hosts)
    return fleet.judge(hosts, whole=False).pairs


def _count(count: int, word: str) -> str:
    return f"{count:,} {word}{'s' * (count != 1)}"
