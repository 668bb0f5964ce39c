"""The command `gpuprov enroll`: parse, call, print, return the exit code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from gpuprov.cli import options
from gpuprov.cli.sections import Command, Written

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuprov.core.errors import Code
    from gpuprov.fleet.enroll import Host
    from gpuprov.spec.model import RawHost


# Hosts at a time without --forks.
AT_A_TIME = 64


def _check_wait(_context: click.Context, _parameter: click.Parameter, value: int | None) -> int | None:
    """Refuse a wait in which nobody can press a key."""
    if value == 0:
        raise click.BadParameter("0 is no time to press a key; allowed: -1 (without an end), 1 to 32767")
    return value


@click.command(cls=Command, short_help="Prepare Secure Boot's enrolment, with a sheet for the consoles.")
@options.inventory
@options.reaching
@click.option("--sheet", type=Written(), help="New file for the consoles, with the passwords; only you can read it.")
@click.option(
    "--hash-file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="One password for all hosts: its hash, as mokutil --generate-hash prints it.",
)
@click.option("--again", is_flag=True, help="Replace requests that wait, also of other certificates.")
@click.option(
    "--console-wait",
    "wait",
    type=click.IntRange(-1, 0x7FFF),
    callback=_check_wait,
    metavar="SECONDS",
    help="How long MokManager waits for a key at the next boot (10); -1: without an end.",
)
@options.read_limit
@options.json_flag
def enroll(
    inventory: options.InventoryOptions,
    sheet: Path | None,
    hash_file: Path | None,
    again: bool,
    wait: int | None,
    timeout: float,
    as_json: bool,
) -> int:
    """Say which hosts with Secure Boot trust the site's certificate (nvidia_driver.signing). With --sheet, request its
    enrolment on those that do not, where the spec has enroll: prepared.

    A person confirms each request in MokManager, at the console, at the next boot; --sheet is what they need for it.
    The one-time passwords are in that file alone. Reboots nothing. Exit code 0: all trust it; 1: some do not yet; 3:
    refused; 4: not reached; 5: another run works there.

    \b
    Example: gpuprov enroll inventory.yaml
             gpuprov enroll inventory.yaml --sheet console.txt --limit rack7
    """
    from gpuprov.core import terminal
    from gpuprov.core.errors import GpuprovError, choose_code
    from gpuprov.fleet import enroll as enrolling

    if (hash_file or again or wait is not None) and sheet is None:
        raise click.UsageError("--hash-file, --again and --console-wait go with --sheet")
    _check_new(sheet)
    shared = _read_hash(hash_file) if hash_file else ""
    signing = enrolling.list_signing(options.load(inventory).pairs)
    if not signing:
        raise GpuprovError(
            "no host has nvidia_driver.signing",
            "write nvidia_driver: {signing: {key_file: FILE, certificate_file: FILE, enroll: prepared}}",
        )
    pace = options.pace(inventory)
    with terminal.Progress([raw.name for raw, _ in signing], "reading", quiet=True):
        hosts = enrolling.read_hosts(signing, again=again, pace=pace, timeout=timeout)
    if sheet is not None and any(host.requested or host.state == "waiting" for host in hosts):
        raws = {raw.name: raw for raw, _ in signing}
        hosts = _make_requests(hosts, raws, sheet, _Options(shared, again, wait, inventory.forks or AT_A_TIME))
    code = choose_code(host.outcome for host in hosts)
    _show(hosts, code if as_json else None, requesting=sheet is not None)
    return code


def _check_new(sheet: Path | None) -> None:
    """Raise GpuprovError if the sheet cannot be written, or would replace one."""
    from gpuprov.core.errors import GpuprovError
    from gpuprov.report.files import check_writable

    if sheet is not None and (sheet.exists() or sheet.is_symlink()):
        raise GpuprovError(f"{sheet} exists, and hosts may still wait for its passwords", "name a new file")
    check_writable(sheet)


def _read_hash(file: Path) -> str:
    from gpuprov.core.errors import GpuprovError
    from gpuprov.core.safe_parse import read_named
    from gpuprov.fleet.enroll.password import HASH

    fix = "mokutil --generate-hash > FILE makes one"
    try:
        text = read_named(str(file)).decode("ascii", errors="replace").strip()
    except OSError as error:
        raise GpuprovError(f"--hash-file {file} cannot be read: {error.strerror}", fix) from error
    if not HASH.fullmatch(text):
        raise GpuprovError(f"--hash-file {file} holds no hash of a password ($6$...)", fix)
    return text


class _Options(NamedTuple):
    """The options of the requests."""

    # The hash of the one password, empty for one-time passwords.
    shared: str
    again: bool
    wait: int | None
    at_a_time: int


def _make_requests(hosts: Sequence[Host], raws: dict[str, RawHost], sheet: Path, chosen: _Options) -> list[Host]:
    """Make the requests. The sheet is written before: a request whose password nobody has could not be confirmed."""
    from datetime import UTC, datetime

    from gpuprov.core import terminal
    from gpuprov.fleet import enroll as enrolling
    from gpuprov.fleet.enroll.password import hash_password, make_password, make_salt
    from gpuprov.fleet.enroll.sheet import compose_sheet
    from gpuprov.report.files import write_atomic

    names = [host.host for host in hosts if host.requested]
    passwords = {} if chosen.shared else {name: make_password() for name in names}

    def write(known: Sequence[Host]) -> None:
        text = compose_sheet(known, passwords, shared=bool(chosen.shared), now=datetime.now(UTC))
        write_atomic(sheet, text, mode=0o600)

    write(hosts)
    hashes = {name: chosen.shared or hash_password(passwords[name], make_salt()) for name in names}
    with terminal.Progress(names, "requesting", quiet=True) as progress:
        requested = enrolling.Request(hashes=hashes, again=chosen.again, wait=chosen.wait)
        done = enrolling.request(raws, hosts, requested, chosen.at_a_time, progress.done)
    if any(host.at_console for host in done):
        write(done)
    else:
        sheet.unlink(missing_ok=True)
    return done


def _show(hosts: Sequence[Host], code: Code | None, *, requesting: bool) -> None:
    """Print the hosts by state, and who is needed at a console. `code`: the exit code, of a document in JSON."""
    from gpuprov.core import terminal
    from gpuprov.core.safe_parse import format_document
    from gpuprov.fleet.enroll import Enrolled, group_hosts
    from gpuprov.inventory.names import fold_names

    waiting = [host.host for host in hosts if host.state == "waiting"]
    if waiting:
        terminal.fix(f"a reboot with a person at the console is needed: {fold_names(waiting)}")
    elif not requesting and any(host.requested for host in hosts):
        terminal.fix("gpuprov enroll --sheet FILE requests it, and writes a sheet for the consoles")
    if code is not None:
        terminal.result(format_document(Enrolled(exit_code=code, hosts=tuple(hosts))))
        return
    lines = []
    for (state, message, fix), names in group_hosts(hosts).items():
        lines.append(f"{state:<12}  {fold_names(names)} ({len(names)}){': ' if message else ''}{message}")
        lines += [f"  fix: {fix}"] if fix else []
    terminal.result("\n".join(lines))
