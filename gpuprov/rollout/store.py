"""Storage of roll-outs: one SQLite file, and a folder for each roll-out's files. Recorded events are on disk, and stay.

Any process may be killed at any moment: an event is stored completely or not at all. Several processes may record (an
engine, and a process that pauses it): `record` returns False if something else was recorded in between, and its caller
reads again.
"""

import os
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from gpuprov.core import safe_parse
from gpuprov.core.errors import GpuprovError
from gpuprov.fleet.policy.events import Event
from gpuprov.inventory.names import fold_names as names
from gpuprov.report.files import refuse_anothers, state_folder
from gpuprov.rollout.kept import FILE, Kept, checked_id, chosen, overlaps, used

FORMAT = 1
# Seconds that a process waits while another one records.
PATIENCE = 30.0
LARGEST = 64 << 20
TABLES = """
CREATE TABLE rollouts (id TEXT PRIMARY KEY, fleet TEXT NOT NULL, begun REAL NOT NULL, by TEXT NOT NULL, open INTEGER NOT NULL) STRICT;
CREATE TABLE hosts (rollout TEXT NOT NULL REFERENCES rollouts, address TEXT NOT NULL, host TEXT NOT NULL) STRICT;
CREATE INDEX hosts_by_address ON hosts (address);
CREATE TABLE events (
  rollout TEXT NOT NULL REFERENCES rollouts, seq INTEGER NOT NULL, event TEXT NOT NULL, PRIMARY KEY (rollout, seq)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER events_stay BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'events are never changed'); END;
CREATE TRIGGER events_remain BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'events are never removed'); END;
"""


def is_damage(error: BaseException) -> bool:
    """Return whether SQLite reports that the file is not, or no longer, what it wrote."""
    # https://www.sqlite.org/rescode.html
    if isinstance(error, UnicodeDecodeError):  # Python reads SQLite's own message, which repeats the file
        return True
    name = getattr(error, "sqlite_errorname", "")
    return name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_FORMAT")) or (
        isinstance(error, sqlite3.OperationalError)
        and str(error).startswith(("Could not decode", "no such table", "no such column"))
    )


class Store:
    """The roll-outs of this user on this machine."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or state_folder("rollout")
        self.file = file = self.folder / FILE
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            refuse_anothers(self.folder)
            # In this order: the file is there before a folder.
            if (lost := self._others()) and not os.path.lexists(file):
                raise self._damaged(f"beside it are the files of {names(lost)}", "missing")
            os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
            self._db = sqlite3.connect(file, timeout=PATIENCE, isolation_level=None)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._prepare()
        except (OSError, sqlite3.Error, UnicodeDecodeError) as error:
            if is_damage(error):
                raise self._damaged(str(error)) from error
            reason = getattr(error, "strerror", None) or error
            fix = "name another folder with XDG_STATE_HOME"
            raise GpuprovError(f"{file}: roll-outs cannot be kept there: {reason}", fix) from error

    def _others(self) -> list[str]:
        """List the folders of roll-outs."""
        return sorted(path.name for path in self.folder.iterdir() if path.is_dir())

    def _damaged(self, why: str, what: str = "damaged") -> GpuprovError:
        fix = (
            f"put it back from a backup; or move {self.folder} away, and look at the hosts of open roll-outs: "
            "gpuprov verify"
        )
        return GpuprovError(f"{self.file} is {what}: {why}; nothing was started", fix)

    def _rows(self, statement: str, words: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return recorded rows. Raises GpuprovError if they cannot be read."""
        try:
            return self._db.execute(statement, words).fetchall()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            if is_damage(error):
                raise self._damaged(str(error)) from error
            raise GpuprovError(f"{self.file} cannot be read: {error}", "run it again") from error

    def _prepare(self) -> None:
        with self._writing():
            [(sound,)] = self._db.execute("PRAGMA quick_check(1)").fetchall()
            if sound != "ok":
                raise self._damaged(" ".join(str(sound).split()))
            [(stored,)] = self._db.execute("PRAGMA user_version").fetchall()
            if stored not in (0, FORMAT):
                message = f"{self.folder} has roll-outs of another gpuprov (format {stored}; this is {FORMAT})"
                raise GpuprovError(message, "go on with the gpuprov that began them")
            if not stored and (lost := self._others()):
                raise self._damaged(f"it is empty, and beside it are the files of {names(lost)}")
            if not stored:
                for statement in re.split(r";\n(?=CREATE|\Z)", TABLES.strip() + "\n"):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version = {FORMAT}")

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield
            self._db.execute("COMMIT")
        except BaseException as error:
            with suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            if is_damage(error):
                raise self._damaged(str(error)) from error
            if isinstance(error, OSError | sqlite3.Error):
                message = f"{self.folder} cannot be written: {getattr(error, 'strerror', None) or error}"
                fix = "make room there, or let it be written; what was recorded before is kept: gpuprov rollout resume"
                raise GpuprovError(message, fix) from error
            raise

    def close(self) -> None:
        """Close the file. Nothing is lost without this."""
        self._db.close()

    def place(self, rollout: str) -> Path:
        """Return the folder of a roll-out's files."""
        return self.folder / rollout

    def begin(
        self, kept: Kept, hosts: Sequence[tuple[str, str]], first: Event, files: Mapping[str, bytes] | None = None
    ) -> None:
        """Store a new roll-out over these hosts, each with one or several addresses at which it is reached, and these
        files in its folder.

        Raises GpuprovError if the id was used before, or if an open roll-out has one of the hosts.
        """
        checked_id(kept.id)
        with self._writing():
            if self._db.execute("SELECT 1 FROM rollouts WHERE id = ?", (kept.id,)).fetchone():
                raise used(kept.id)
            if (place := self.place(kept.id)).is_dir() and (
                old := {path.name for path in place.iterdir()} - {*(files or {})}
            ):
                raise GpuprovError(
                    f"{place} has {min(old)} of a roll-out that {self.file} does not have; nothing was started",
                    "take another --id, or move the folder away",
                )
            self._refuse_overlap([address for _, address in hosts])
            row = (kept.id, kept.fleet, kept.begun, kept.by, 1)
            self._db.execute("INSERT INTO rollouts VALUES (?, ?, ?, ?, ?)", row)
            rows = ((kept.id, address, host) for host, address in hosts)
            self._db.executemany("INSERT INTO hosts VALUES (?, ?, ?)", rows)
            self._insert(kept.id, 0, [first])
            self._write(self.place(kept.id), files or {})

    @staticmethod
    def _write(place: Path, files: Mapping[str, bytes]) -> None:
        """Write the files. A folder that exists already is from a `begin` that was killed before it recorded
        anything."""
        place.mkdir(mode=0o700, exist_ok=True)
        place.chmod(0o700)
        for name, data in files.items():
            handle = os.open(place / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with os.fdopen(handle, "wb") as file:
                os.fchmod(handle, 0o600)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        for folder in (place, place.parent):
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            os.fsync(handle)
            os.close(handle)

    def _refuse_overlap(self, addresses: Sequence[str]) -> None:
        self._db.execute("CREATE TEMP TABLE IF NOT EXISTS wanted (address TEXT PRIMARY KEY)")
        self._db.execute("DELETE FROM wanted")
        self._db.executemany("INSERT OR IGNORE INTO wanted VALUES (?)", ((address,) for address in addresses))
        rows = self._db.execute(
            "SELECT DISTINCT rollout, host FROM hosts NATURAL JOIN wanted JOIN rollouts ON id = rollout "
            "WHERE open ORDER BY hosts.rowid"
        ).fetchall()
        if rows:
            other = rows[0][0]
            raise overlaps(other, [host for rollout, host in rows if rollout == other])

    def record(self, rollout: str, seen: int, events: Sequence[Event], *, over: bool = False) -> bool:
        """Record events after the first `seen`, all or none; False if others were recorded meanwhile. `over`: these are
        the last ones."""
        with self._writing():
            if self._last(rollout) != seen:
                return False
            self._insert(rollout, seen, events)
            if over:
                self._db.execute("UPDATE rollouts SET open = 0 WHERE id = ?", (rollout,))
        return True

    def _insert(self, rollout: str, seen: int, events: Sequence[Event]) -> None:
        rows = ((rollout, seen + n, msgspec.json.encode(event).decode()) for n, event in enumerate(events, start=1))
        self._db.executemany("INSERT INTO events VALUES (?, ?, ?)", rows)

    def _last(self, rollout: str) -> int:
        [(newest,)] = self._rows("SELECT coalesce(max(seq), 0) FROM events WHERE rollout = ?", (rollout,))
        return int(newest)

    def events(self, rollout: str, seen: int = 0) -> list[Event]:
        """List the events recorded after the first `seen`."""
        rows = self._rows("SELECT seq, event FROM events WHERE rollout = ? AND seq > ? ORDER BY seq", (rollout, seen))
        loaded: list[Event] = []
        for number, (seq, text) in enumerate(rows, start=seen + 1):
            try:
                if seq != number:
                    raise safe_parse.Unreadable("it is not there")
                loaded.append(safe_parse.parse_typed_json(text, Event, largest=LARGEST))  # type: ignore[arg-type]
            except (safe_parse.Unreadable, TypeError) as error:
                raise self._damaged(f"event {number} of {rollout} cannot be read: {error}") from error
        return loaded

    def all(self) -> list[Kept]:
        """Return every roll-out, the newest last."""
        rows = self._rows(
            "SELECT id, fleet, begun, by, open, count(DISTINCT host) FROM rollouts JOIN hosts ON rollout = id "
            "GROUP BY id ORDER BY begun, id"
        )
        return [
            Kept(rollout, fleet, begun, by, bool(is_open), hosts) for rollout, fleet, begun, by, is_open, hosts in rows
        ]

    def get(self, rollout: str = "") -> Kept:
        """Return the roll-out with this id; without an id, the only open one. Raises GpuprovError."""
        return chosen(self.all(), rollout)
