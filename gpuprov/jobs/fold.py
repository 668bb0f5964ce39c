"""Any number of results as one report. Each file is read once; what hosts have in common is stored once, with a few
words for each.

Results come from many machines, by any transport: a file that is damaged, of another host or of a newer gpuprov is
reported, never trusted, and never stops the report; its host has no result.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from sys import intern

import msgspec

from gpuprov.core import safe_parse
from gpuprov.core.errors import GpuprovError
from gpuprov.jobs import results as files
from gpuprov.jobs.compared import Kept, complete_hosts
from gpuprov.jobs.model import RESULT_FORMAT, Compared, Fleet, HostResult, Row
from gpuprov.jobs.outcome import ENDED
from gpuprov.jobs.tally import Tally
from gpuprov.report.many import Alike, Many
from gpuprov.spec.connection import HOST_NAME
from gpuprov.verify.evaluate import Result
from gpuprov.verify.verify import NextBoot

# The state of a host of the fleet that has no result.
NOT_DONE = "not-done"
# Maximum number of files to report by name.
NAMED = 12


class Head(msgspec.Struct, frozen=True):
    """Header, read before the rest, whose format may differ in another version."""

    gpuprov_result: int


class _Newer(Exception):
    """A result of another format."""

    def __str__(self) -> str:
        return f"it is a result of format {self.args[0]}, of another gpuprov; allowed: {RESULT_FORMAT}"


class Folded(msgspec.Struct, frozen=True):
    """The whole report."""

    many: Many
    tally: Tally
    # By host.
    seconds: Mapping[str, float]
    states: Mapping[str, int]
    unread_files: Sequence[str]
    # Number of files without a usable result, of which `unread_files` names some.
    unread: int


def fold(folders: Sequence[Path], fleet: Fleet | None = None, run: str = "") -> Folded:
    """Fold the newest result of each host in these folders and the folders in them. Raises GpuprovError if a folder
    cannot be read, or there is no host.

    fleet: only its hosts, and each of them. run: results of this run alone.
    """
    gathering = _Gathering(fleet, run)
    for folder in folders:
        gathering.read(folder)
    return gathering.ended()


class _Gathering:
    def __init__(self, fleet: Fleet | None, run: str) -> None:
        self.digest = fleet.digest if fleet else ""
        self.names = {host.name: None for host in fleet.hosts} if fleet else None
        self.run = run
        self.kept: dict[str, Kept] = {}
        self.lost: dict[str, str] = {}
        self.unread_files: list[str] = []
        self.unread = 0
        self._alike: dict[tuple[object, ...], Alike] = {}
        self._rows: dict[Row, Result] = {}
        self._boots: dict[object, NextBoot] = {}
        self._compared: dict[Compared, Compared] = {}

    def read(self, folder: Path) -> None:
        """Read a folder, and the folders in it."""
        try:
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise GpuprovError(
                f"{folder} cannot be read: {error.strerror}", "name folders that gpuprov fleet work wrote to"
            ) from error
        self._folder(handle, folder, below=1)

    def _folder(self, handle: int, place: Path, below: int) -> None:
        try:
            with os.scandir(handle) as entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    if below and entry.is_dir(follow_symlinks=False):
                        self._inner(handle, entry.name, place, below - 1)
                    elif entry.name.endswith(files.END):
                        self._file(handle, entry.name, place)
        finally:
            os.close(handle)

    def _inner(self, handle: int, name: str, place: Path, below: int) -> None:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            inner = os.open(name, flags, dir_fd=handle)
        except OSError as error:
            self._refuse(place / name, error.strerror or "it cannot be read")
            return
        self._folder(inner, place / name, below)

    def _file(self, handle: int, name: str, place: Path) -> None:
        try:
            data = files.contents(name, handle)
            result = self._typed(data)
        except OSError as error:
            link = os.path.islink(place / name)
            self._refuse(
                place / name, "this is a link, which is not followed" if link else error.strerror or "unreadable"
            )
        except (safe_parse.Unreadable, _Newer) as error:
            self._refuse(place / name, str(error))
        else:
            self._take(result, place / name)

    def _typed(self, data: bytes) -> HostResult:
        try:
            return safe_parse.parse_typed_json(data, HostResult, largest=files.LARGEST)
        except safe_parse.Unreadable as error:
            with suppress(safe_parse.Unreadable):
                head = safe_parse.parse_typed_json(data, Head, largest=files.LARGEST)
                if head.gpuprov_result != RESULT_FORMAT:
                    raise _Newer(head.gpuprov_result) from error
            raise safe_parse.Unreadable(f"it is not a result: {error}") from error

    def _take(self, host_result: HostResult, path: Path) -> None:
        if host_result.gpuprov_result != RESULT_FORMAT:
            self._refuse(path, str(_Newer(host_result.gpuprov_result)))
        elif files.file_name(host_result.host) != path.name or not HOST_NAME.fullmatch(host_result.host):
            self._refuse(path, f"it says that it is of {host_result.host[:100]!r}")
        elif self.names is not None and host_result.host not in self.names:
            self._refuse(path, "its host is not in the fleet")
        elif self.run and host_result.run != self.run:
            return
        elif self.digest and host_result.fleet != self.digest:
            self._refuse(path, "it is of another fleet, or of this one as it was frozen before")
        else:
            before = self.kept.get(host_result.host)
            if before is None or before.ended < host_result.ended:
                compared, machine = host_result.compared, ""
                if compared:
                    machine, compared = compared.machine, msgspec.structs.replace(compared, machine="")
                    compared = self._compared.setdefault(compared, compared)
                alike = self._of(host_result)
                errors, name = host_result.nvlink_errors, host_result.host
                self.kept[name] = Kept(host_result.ended, host_result.seconds, alike, compared, machine, errors)

    def _refuse(self, path: Path, why: str) -> None:
        self.unread += 1
        host = files.host_of(path.name)
        if self.names is None or host in self.names:
            self.lost.setdefault(intern(host), why)
        if len(self.unread_files) < NAMED:
            self.unread_files.append(f"{path}: {why}")

    def _of(self, host_result: HostResult) -> Alike:
        rows = (*host_result.failures, *host_result.unproven)
        boot = host_result.next_boot
        boot_state = (boot.verdict, boot.reasons) if boot else ("unknown", ("nothing was verified",))
        key = (
            host_result.act,
            host_result.state,
            host_result.verdict,
            tuple(sorted(host_result.counts.items())),
            rows,
            boot_state,
        )
        alike = self._alike.get(key)
        if alike is None:
            alike = self._alike[key] = Alike(
                rows=tuple(self._row(row) for row in rows),
                counts=host_result.counts,
                verdict=host_result.verdict or ("not proven" if host_result.state == "prepared" else "differs"),
                next_boot=self._boots.setdefault(boot_state, NextBoot(*boot_state)),
                state=host_result.state,
                act=host_result.act,
            )
        return alike

    def _row(self, row: Row) -> Result:
        return self._rows.setdefault(row, row.result())

    def ended(self) -> Folded:
        """Return the report of what was read."""
        order = self.names if self.names is not None else dict.fromkeys(sorted({*self.kept, *self.lost}))
        hosts: dict[str, Alike] = {}
        absent: dict[str, Alike] = {}
        tally = Tally()
        seconds: dict[str, float] = {}
        racks = complete_hosts(self.kept)
        for host in order:
            kept = self.kept.pop(host, None)
            if kept and kept.seconds:
                seconds[host] = kept.seconds
            entry = kept.alike if kept else _make_absent(self.lost.get(host, "there is no result of it"), absent)
            hosts[host] = entry
            tally.add(entry.state, entry.verdict, entry.counts)
        if not hosts:
            raise GpuprovError("there is no result in these folders", "name folders that gpuprov fleet work wrote to")
        return Folded(
            Many(hosts, tally.verdict, racks), tally, seconds, dict(tally.states), self.unread_files, self.unread
        )


def _make_absent(why: str, known: dict[str, Alike]) -> Alike:
    if why not in known:
        row = Result(
            host="",
            capability="host",
            check=ENDED,
            status="error",
            expected="a result of the host",
            found=f"not done: {why}",
            fix="do its job (again): gpuprov fleet work JOB --results DIR",
        )
        boot = NextBoot("unknown", ("not done",))
        known[why] = Alike((row,), {"error": 1}, "differs", boot, NOT_DONE)
    return known[why]


def sentence(folded: Folded) -> Iterator[str]:
    """Yield what is printed besides the report: the number of hosts with each outcome, and the files that were left
    out."""
    acts = {entry.act for entry in folded.many.alike if entry.act}
    if acts != {"verify"} or folded.states.get(NOT_DONE):
        counts = ", ".join(f"{number} {state.replace('-', ' ')}" for state, number in sorted(folded.states.items()))
        yield f"{', '.join(sorted(acts)) or 'results'}: {counts}"
    if folded.unread:
        more = f"\n  and {unnamed} more" if (unnamed := folded.unread - len(folded.unread_files)) else ""
        lines = "".join(f"\n  {line}" for line in folded.unread_files)
        yield f"{folded.unread} file{'s' * (folded.unread != 1)} left out:{lines}{more}"
