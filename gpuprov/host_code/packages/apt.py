"""Packages by apt and dpkg."""

from __future__ import annotations

import re
from typing import Sequence

from . import apt_files, apt_settings
from .apt_database import QUIETLY, prepare
from .commands import Ran, run
from .lists import parse_installed, parse_madison, parse_rows
from .model import Done, Known, Prepared, Refused, Settings, Transaction, Trial

ROWS = "${db:Status-Abbrev}|${Package}|${Version}|${source:Package}|${Architecture}|${Maintainer}\\n"
# Without autoinstall_all_kernels a package's postinst builds for the running and the newest kernel only (dkms,
# common.postinst).
OPTIONS = (
    *("-y", "-q", "--no-install-recommends", "--allow-downgrades", "--allow-change-held-packages"),
    *("-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold"),
)


class Apt:
    """See `model.Manager`."""

    name = "apt"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def prepare(self, max_age: int, check: bool) -> Prepared:
        return prepare(self._settings.lock_timeout, max_age, check)

    def fetch(self, source: str) -> None:
        apt_files.fetch(source, self._settings.lock_timeout)

    def read(self, names: Sequence[str], related: str = "") -> Known:
        with apt_settings.leave_out_sources(self._settings.without) as environment:
            rows = capture_output(["dpkg-query", "-W", "-f", ROWS])
            known = parse_rows(rows)
            beside = [row[1] for row in known if related and re.match(related, row[3])]
            requested = list(dict.fromkeys([*names, *beside]))
            index = capture_output(["apt-cache", "madison", *requested], environment) if requested else ""
            held = capture_output(["apt-mark", "showhold"], environment).split()
        return Known(known, parse_installed(rows), parse_madison(index), held)

    def attempt(self, transaction: Transaction) -> Trial:
        ran = self._apt(transaction, "-s")
        rows = [row for row in map(shorten_row, ran.lines) if row]
        half = any(line.startswith("Conf ") for line in ran.lines)
        return Trial(rows, f"{find_reason(ran.lines)} {ran.err.strip()}".strip() if ran.status else "", half)

    def download(self, transaction: Transaction) -> str:
        ran = self._apt(transaction, "--download-only")
        return " ".join(ran.err.splitlines()[-4:]) if ran.status else ""

    def commit(self, transaction: Transaction) -> Done:
        ran = self._apt(transaction)
        return Done(f"{ran.err.strip()} {' '.join(ran.lines[-12:])}" if ran.status else "")

    def hold(self, hold: Sequence[str], release: Sequence[str], check: bool) -> list[str]:
        held = capture_output(["apt-mark", "showhold"]).split()
        foreign = list_foreign(parse_rows(capture_output(["dpkg-query", "-W", "-f", ROWS])), list_own())
        # apt-mark takes a bare name for the host's own architecture.
        specs = expand_names(hold, foreign, bare_too=False)
        gone = expand_names([name for name in release if name not in hold], foreign, bare_too=True)
        new, loose = [name for name in specs if name not in held], [name for name in gone if name in held]
        for word, names in (("hold", new), ("unhold", loose)):
            if names and not check:
                capture_output(["apt-mark", word, *names])
        return [f"hold {name}" for name in new] + [f"release {name}" for name in loose]

    def files(self, packages: Sequence[str]) -> list[str]:
        with apt_settings.leave_out_sources(self._settings.without) as environment:
            return [apt_files.fetch_file(package, environment) for package in packages]

    def _apt(self, transaction: Transaction, *options: str) -> Ran:
        waiting = ("-o", f"DPkg::Lock::Timeout={self._settings.lock_timeout}")
        changes = [*transaction.install, *(f"{name}-" for name in transaction.remove)]
        with apt_settings.leave_out_sources(self._settings.without) as hidden, apt_settings.pin_versions(
            transaction.pin
        ) as preferences:
            argv = ["apt-get", *preferences, *options, *OPTIONS, *waiting, "install", *changes]
            return run(argv, {**QUIETLY, **hidden})


def capture_output(argv: Sequence[str], environment: dict[str, str] | None = None) -> str:
    """Return the program's output. Raises Refused if it fails."""
    ran = run(argv, environment)
    if ran.status:
        raise Refused(
            f"{' '.join(argv[:2])} fails: {ran.message[-300:]}. Fix: correct what it reports, then apply again"
        )
    return ran.out


UNMET = "The following packages have unmet dependencies:"


def find_reason(lines: Sequence[str]) -> str:
    """Return the conflicting packages; else the last lines, without those about packages that are installed already."""
    if UNMET in lines:
        reasons = [line.strip() for line in lines[lines.index(UNMET) + 1 :] if line.strip()]
        return f"{UNMET} {'; '.join(reasons)}{'.' * bool(reasons)}".strip()
    return " ".join([line for line in lines if " is already the newest version" not in line][-12:])


def shorten_row(line: str) -> str:
    """Return a line of apt-get -s without old versions and sources."""
    # Remv nvidia-kernel-dkms [535.1-1]
    if match := re.match(r"Remv (\S+)", line):
        return match[0]
    # Inst libssl3 [3.0.2-0ubuntu1.10] (3.0.2-0ubuntu1.15 Ubuntu:22.04/jammy-security [amd64])
    match = re.match(r"Inst (\S+)(?: \[[^]]*\])? \((\S+)", line)
    return f"Inst {match[1]} {match[2]}" if match else ""


def list_own() -> str:
    return capture_output(["dpkg", "--print-architecture"]).strip()


def list_foreign(rows: Sequence[Sequence[str]], native_arch: str) -> dict[str, list[str]]:
    """Return the packages of other architectures, by name: `NAME:ARCHITECTURE`, preceded by the bare name if the host's
    own is installed, too."""
    native = {row[1] for row in rows if row[4] in ("all", native_arch)}
    foreign: dict[str, list[str]] = {}
    for row in rows:
        if row[4] not in ("all", native_arch):
            foreign.setdefault(row[1], [row[1]] if row[1] in native else []).append(f"{row[1]}:{row[4]}")
    return foreign


def expand_names(names: Sequence[str], foreign: dict[str, list[str]], *, bare_too: bool) -> list[str]:
    """Return the names as apt-mark takes them, for every architecture in which they are installed."""
    each = [([name] if bare_too else []) + foreign.get(name, [name]) for name in names]
    return sorted({spec for several in each for spec in several})
