"""The command line: parse, call, print, return the exit code. No decisions are made here."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuprov import __version__
from gpuprov.cli import carried, habits, options
from gpuprov.cli.about import about
from gpuprov.cli.accept import accept
from gpuprov.cli.bake import bake
from gpuprov.cli.bundle import bundle
from gpuprov.cli.capture import capture
from gpuprov.cli.change import apply, plan
from gpuprov.cli.diff import diff
from gpuprov.cli.drain import drain, undrain
from gpuprov.cli.drift import drift
from gpuprov.cli.enroll import enroll
from gpuprov.cli.fleet import fleet as fleet_commands
from gpuprov.cli.health import health
from gpuprov.cli.init import init
from gpuprov.cli.mig import mig
from gpuprov.cli.reference import catalog, explain, schema
from gpuprov.cli.repair import repair
from gpuprov.cli.rollback import rollback
from gpuprov.cli.rollout import rollout
from gpuprov.cli.sections import Purposes, Written
from gpuprov.cli.show import show
from gpuprov.cli.simulate import simulate
from gpuprov.cli.test import test
from gpuprov.cli.topology import topology
from gpuprov.cli.verify import verify
from gpuprov.core.sanitize import counted

FILE = Written()

if TYPE_CHECKING:
    from gpuprov.fleet.specs import Fleet


@click.group(cls=Purposes, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="gpuprov")
def cli() -> None:
    """Declare what a GPU host should be; gpuprov makes it so, and proves it.

    \b
    Example: gpuprov init
             gpuprov plan inventory.yaml
             gpuprov apply inventory.yaml --limit gpu001

    Without INVENTORY: $GPUPROV_INVENTORY, then ./inventory.yaml, then what ansible.cfg names. gpuprov COMMAND --help
    says more. Completion: eval "$(_GPUPROV_COMPLETE=bash_source gpuprov)", or zsh_source, fish_source.
    """


cli.add_command(init)


@cli.command(short_help="Check the inventory offline. Contacts no host.")
@options.inventory
@carried.bundle
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "sarif", "github"]),
    default="text",
    show_default=True,
    help="sarif: SARIF 2.1.0, for code scanning; github: annotations in a GitHub workflow.",
)
@options.json_flag
def check(inventory: options.InventoryOptions, bundle: Path | None, signers: Path, form: Any, as_json: bool) -> int:
    """Check the inventory offline: is it valid, and can this hardware do it? Contacts no host.

    An executable file that is an inventory, or lies in an inventory folder, is a dynamic inventory script: it is run
    with --list, as Ansible does. With --bundle, the folder is checked too: signed, complete, not expired, and made for
    these specs.

    \b
    Example: gpuprov check inventory.yaml --limit training
             gpuprov check inventory.yaml --bundle usb/bundle --signers allowed_signers
             gpuprov check inventory.yaml --format sarif > check.sarif
    """
    from gpuprov.report import specs

    if as_json and form not in ("text", "json"):
        raise click.UsageError(f"--json and --format {form} exclude each other: leave one out")

    def fleet() -> Fleet:
        loaded = options.load(inventory, warn=None if form == "github" else True)
        if bundle:
            from gpuprov.bundle import opened

            opened.made_for(opened.opened(bundle, signers), loaded.pairs)
        return loaded

    return specs.show_check(fleet, form="json" if as_json else form, verbose=inventory.verbose)


@cli.command(short_help="Write the Ansible project that apply runs.")
@options.inventory
@click.option("-o", "--out", required=True, type=Written(folder=True), help="Folder to write.")
def render(inventory: options.InventoryOptions, out: Path) -> int:
    """Write the Ansible project that apply runs, for ansible-playbook or AWX with gpuprov installed beside
    ansible-core.

    \b
    Example: gpuprov render inventory.yaml --out build
             ansible-playbook -i build/inventory.yml build/site.yml
    """
    from gpuprov.core import terminal
    from gpuprov.render import render as project
    from gpuprov.render import write

    fleet = options.load(inventory)
    rendered = project(fleet.pairs)
    write(rendered, out)
    for secret in rendered.left_out:
        terminal.warning(f"not rendered, because it is a secret: {secret}")
    terminal.progress(f"{counted(len(fleet.pairs), 'host')}, {counted(len(rendered.files), 'file')} in {out}")
    terminal.progress(f"next: cd {shlex.quote(str(out))} && ansible-playbook site.yml; {out / 'README.md'} says more")
    return 0


cli.add_command(plan)
cli.add_command(apply)
cli.add_command(rollback)
cli.add_command(verify)


@cli.command(short_help="Try the whole run on simulated hosts first.")
@options.inventory
@click.option("--kind", type=click.Choice(["container", "machine"]), help="What a simulated host is (container).")
@click.option("--distribution", metavar="NAME", help="The distribution it runs (debian12).")
@click.option("--all-hosts", is_flag=True, help="Simulate every host, not one for each distinct spec.")
@click.option("--keep", is_flag=True, help="Keep the simulated hosts and print how to log in.")
@click.option(
    "-f",
    "--forks",
    metavar="N",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help="How many simulated hosts run at the same time.",
)
@click.option("--junit", type=FILE, help="Write JUnit XML to this file.")
@click.option("--html", type=FILE, help="Write one self-contained HTML page to this file.")
@click.option("--log-dir", type=Written(folder=True), help="Folder for the logs of the runs.")
@options.json_flag
def rehearse(
    inventory: options.InventoryOptions, as_json: bool, junit: Path | None, html: Path | None, **given: Any
) -> int:
    """Try the whole run on simulated hosts: apply, verify, reboot, verify, apply again. Contacts no host of the
    inventory.

    Needs root, and podman or docker. The variable `simulated_host` of a host or group adds what a spec does not say.

    \b
    Example: gpuprov rehearse inventory.yaml --limit gpu017
    """
    from gpuprov import rehearse as rehearsing

    fleet = options.load(inventory)
    more = habits.keep_given(given)
    chosen = rehearsing.Options(**more, forks=inventory.forks, verbose=inventory.verbose)
    page = about("rehearse", inventory, files={"html": html}) if html else None
    return rehearsing.run(fleet.pairs, chosen, plain=as_json, junit=junit, html=html, about=page)


@cli.command(short_help="Write the hosts' current state as an inventory with specs.")
@options.inventory
@options.reaching
@click.option("-o", "--out", type=FILE, help="Write to this file instead of standard output.")
@click.option("--mig-parted", type=FILE, help="Also write the MIG layouts as a mig-parted v1 file, one label per host.")
@options.read_limit
@options.json_flag
def export(
    inventory: options.InventoryOptions, out: Path | None, mig_parted: Path | None, timeout: float, as_json: bool
) -> int:
    """Write the hosts' current state as an inventory with specs; hosts need no gpuprov variable yet.

    \b
    Example: gpuprov export inventory.yaml --limit gpu001 > gpu001.yaml
    """
    from gpuprov.export import export as read
    from gpuprov.report import retry, specs
    from gpuprov.report.files import check_writable

    check_writable(out, mig_parted)
    hosts = options.raw_hosts(inventory)
    exported = read(hosts, mig_parted=mig_parted is not None, timeout=timeout, pace=options.pace(inventory))
    code = specs.show_export(exported, out, as_json=as_json, mig_parted=mig_parted)
    retry.offer("export", exported.again, len(hosts))
    return code


REST = (
    health,
    repair,
    rollout,
    fleet_commands,
    bake,
    diff,
    drift,
    explain,
    catalog,
    capture,
    accept,
    drain,
    undrain,
    enroll,
    mig,
    topology,
    show,
    bundle,
    schema,
    simulate,
    test,
)
for command in REST:
    cli.add_command(command)
