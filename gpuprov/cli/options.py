"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from gpuprov.cli import complete
from gpuprov.cli.habits import combine, extra_vars, shared, take, user
from gpuprov.cli.login import logged_in, refuse_unusable
from gpuprov.cli.sections import WEEK, Seconds, Written
from gpuprov.core.sanitize import counted
from gpuprov.core.time_limits import ACT_LIMIT, HOST_LIMIT
from gpuprov.report.files import ReportFiles

if TYPE_CHECKING:
    from gpuprov.facts.collect.rounds import Pace
    from gpuprov.fleet.specs import Fleet
    from gpuprov.spec.model import RawHost

C = TypeVar("C", bound=Callable[..., Any])
T = TypeVar("T")


class InventoryOptions(NamedTuple):
    """The inventory that a command reads, and how its hosts are reached. What a command has no option for is unset."""

    sources: tuple[str, ...] = ()
    inventories: tuple[str, ...] = ()
    limit: str | None = None
    vault_password_files: tuple[str, ...] = ()
    ask_vault_pass: bool = False
    extra_vars: tuple[str, ...] = ()
    no_cache: bool = False
    verbose: bool = False
    debug: bool = False
    forks: int = 0
    user: str | None = None
    ask_become_pass: bool = False


def inventories(name: str, about: str, *words: str) -> Callable[[C], C]:
    """Return a decorator for -i/--inventory, as in Ansible, or for `words`; the command receives the sources under this
    name."""
    return shared(
        *(words or ("-i", "--inventory")),
        name,
        multiple=True,
        metavar="INVENTORY",
        shell_complete=complete.files,
        help=about,
    )


def vault(command: C) -> C:
    """Add the options for vault passwords."""
    command = shared("--ask-vault-pass", is_flag=True, help="Ask for the vault password.")(command)
    return shared(
        "--vault-password-file",
        "vault_password_files",
        multiple=True,
        type=click.Path(),
        help="File with a vault password; may be repeated.",
    )(command)


def common(command: C) -> C:
    """Add -v and --debug, which every command takes."""
    command = shared("-v", "--verbose", is_flag=True, help="Show more: passed checks, sources, single tasks.")(command)
    return shared("--debug", is_flag=True, help="Show tracebacks.")(command)


# Add the options for reading an inventory: vault and cache options, and the common ones; the command receives them,
# and those of `reaching`, as `inventory`.
reading = combine(
    vault,
    extra_vars("Override variables: NAME=VALUE, YAML, JSON or @FILE; `gpuprov` is merged over each host's."),
    shared("--no-cache", is_flag=True, help="Ignore the cache of resolved inventories."),
    common,
    take(InventoryOptions, "inventory"),
)

# Add INVENTORY..., --limit, and what `reading` adds.
inventory = combine(
    click.argument("sources", metavar="[INVENTORY]...", nargs=-1, shell_complete=complete.files),
    inventories("inventories", "An inventory, as with Ansible; the same as the argument."),
    shared(
        "-l",
        "--limit",
        metavar="PATTERN",
        shell_complete=complete.hosts,
        help="Only hosts that match this Ansible host pattern, or @FILE.",
    ),
    reading,
)


# --json: the result as JSON on standard output.
json_flag = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


# --break-lock: locks to take over, by their ids. Without an id it breaks none, and the message gives the id.
break_lock = click.option(
    "--break-lock",
    metavar="ID",
    multiple=True,
    is_flag=False,
    flag_value="",
    help="Take over the lock with this id (the message of a locked host names it) from a run that is gone for good.",
)


# Add --junit, --html and --prometheus: a report as files, too; the command receives them as `files`.
report_files = combine(
    click.option("--junit", type=Written(), help="Write JUnit XML to this file."),
    click.option("--html", type=Written(), help="Write one self-contained HTML page to this file."),
    click.option(
        "--prometheus", type=Written(), help="Write metrics for node_exporter's textfile collector to this file."
    ),
    take(ReportFiles, "files"),
)


# --timeout: the limit of an act. An unresponsive host is given up long before it.
act_limit = click.option(
    "--timeout",
    metavar="SECONDS",
    type=click.IntRange(min=1, max=WEEK),
    default=ACT_LIMIT,
    show_default=True,
    help="Time limit of one act on a host; a host that is silent for two minutes is given up earlier.",
)


# --from: records of hosts; the command receives their paths as `records`.
recorded = click.option(
    "--from",
    "records",
    multiple=True,
    metavar="PATH",
    type=click.Path(exists=True, allow_dash=True, path_type=Path),
    help="Judge this record instead of the host: bug report of NVIDIA, sosreport, must-gather, capture, kernel log, "
    "nvidia-smi -q (also -x), nvidia-smi nvlink, ibstat, lspci -nn or -vv, or a folder of them; - for standard input.",
)


# --timeout: the limit of reading one host.
read_limit = click.option(
    "--timeout",
    metavar="SECONDS",
    type=Seconds(1),
    default=HOST_LIMIT,
    show_default=True,
    help="Time limit of reading one host.",
)


# --gpu: a model of the catalogue.
gpu = click.option(
    "--gpu",
    required=True,
    metavar="MODEL",
    shell_complete=complete.models,
    help="A model listed by gpuprov catalog gpus, or a PCI id.",
)


# --only: narrow to some capabilities.
capabilities = click.option(
    "--only",
    metavar="NAME,...",
    shell_complete=complete.capabilities,
    help="Only these capabilities, e.g. nouveau,nvidia_driver.",
)


# Add --forks, --user and --ask-become-pass, for commands that connect to hosts.
reaching = combine(
    shared(
        "-f",
        "--forks",
        metavar="N",
        type=click.IntRange(min=1),
        help="How many hosts to connect to at the same time, at most.",
    ),
    user,
    shared(
        "-K",
        "--ask-become-pass",
        is_flag=True,
        help="Ask for the sudo password, used where the inventory has none.",
    ),
)


def reaches_nobody(why: str, inventory: InventoryOptions) -> None:
    """Raise UsageError if an option is about connecting to hosts, and `why` says that none is contacted."""
    for name in ("forks", "user", "ask_become_pass"):
        if getattr(inventory, name):
            raise click.UsageError(f"{why} reaches no host: leave out --{name.replace('_', '-')}")


def pace(inventory: InventoryOptions) -> Pace:
    """Return the number of hosts to contact at a time."""
    from gpuprov.facts.collect.rounds import Pace

    return Pace(inventory.forks)


def load(inventory: InventoryOptions, also: Sequence[str] | None = None, *, warn: bool | None = False) -> Fleet:
    """Return the fleet that the inventory options name. also: see `gpuprov.inventory.load`.

    Its warnings go to standard error for check, plan and -v; other commands only mention that there are some. None: the
    caller prints them.
    """
    from msgspec.structs import replace

    from gpuprov.core import terminal
    from gpuprov.fleet.specs import load_fleet

    fleet = _bind_options(load_fleet, inventory)(also=also)
    if warn or (inventory.verbose and warn is not None):
        for warning in fleet.warnings:
            terminal.progress(str(warning))
    elif fleet.warnings and warn is not None:
        terminal.progress(f"{counted(len(fleet.warnings), 'warning')} about the inventory: gpuprov check prints them")
    hosts = logged_in([raw for raw, _ in fleet.pairs], inventory.user, ask=inventory.ask_become_pass)
    pairs = tuple((raw, spec) for raw, (_, spec) in zip(hosts, fleet.pairs, strict=True))
    return replace(fleet, pairs=pairs)


def raw_hosts(inventory: InventoryOptions) -> Sequence[RawHost]:
    """Return the inventory's hosts, whether they have a spec or not."""
    from gpuprov.inventory import load

    hosts = _bind_options(load, inventory)().hosts
    refuse_unusable(hosts)
    return logged_in(hosts, inventory.user, ask=inventory.ask_become_pass)


def all_sources(inventory: InventoryOptions) -> Sequence[str]:
    """Return the inventories given as an argument or with -i; else the default one."""
    from gpuprov.inventory import find_default_sources

    return (*inventory.sources, *inventory.inventories) or find_default_sources()


def _bind_options(read: Callable[..., T], inventory: InventoryOptions) -> Callable[..., T]:
    return partial(
        read,
        all_sources(inventory),
        limit=inventory.limit,
        vault_password_files=inventory.vault_password_files,
        ask_vault_pass=inventory.ask_vault_pass,
        extra_vars=inventory.extra_vars,
        cache=not inventory.no_cache,
    )


def ask_something(fleet: Fleet, names: frozenset[str] | None) -> None:
    """Raise UsageError if --only names nothing that any of these hosts has: the result would be empty."""
    present = list(dict.fromkeys(name for _, spec in fleet.pairs for name in spec.capabilities))
    if names is not None and not names & set(present):
        listing = ", ".join(present) or "nothing"
        raise click.UsageError(
            f"--only: none of these hosts has {', '.join(sorted(names))} in its spec; they have: {listing}"
        )


def must_be_able_to_ask(why: str, fix: str) -> None:
    """Raise GpuprovError if a prompt would not be seen, or could not be answered."""
    from gpuprov.core import terminal
    from gpuprov.core.errors import GpuprovError

    if not terminal.can_ask():
        raise GpuprovError(f"{why}, and there is no terminal to ask on", fix)


def only(text: str | None) -> frozenset[str] | None:
    """Return the capabilities named by --only. Raises UsageError for a name that does not exist."""
    if text is None:
        return None
    from gpuprov.capabilities import CAPABILITIES

    known = [capability.name for capability in CAPABILITIES]
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in known:
            from difflib import get_close_matches

            near = get_close_matches(name, known, n=1, cutoff=0.75)
            fix = f'did you mean "{near[0]}"?' if near else f"allowed: {', '.join(known)}"
            raise click.UsageError(f'--only: there is no capability "{name}"; {fix}')
    return frozenset(names)
