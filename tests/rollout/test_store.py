"""What was recorded stays, whole, whoever is killed; two roll-outs never have a host in common."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gpuprov.core.errors import GpuprovError
from gpuprov.fleet.policy import events
from gpuprov.rollout.kept import Kept
from gpuprov.rollout.store import Store
from tests.rows import run_each

pytestmark = pytest.mark.install  # programs, started again and again

HOSTS = [("gpu001", "192.0.2.1"), ("gpu002", "192.0.2.2"), ("gpu003", "192.0.2.3")]
FIRST = events.Started(at=1.0, by="alice")


def kept(name: str) -> Kept:
    return Kept(name, "digest", 1.0, "alice", True, 3)


def paused(by: str) -> events.Paused:
    return events.Paused(at=2.0, by=by)


def test_events_are_read_as_they_were_recorded(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.begin(kept("friday"), HOSTS, FIRST)
    more: list[events.Event] = [
        events.Working(at=2.5, job=1, act="apply", hosts=("gpu001",)),
        events.Done(at=3.0, job=1, hosts=(events.HostEnd("gpu001", "green", "changed", "\x1b[2J"),)),
    ]
    assert store.record("friday", 1, more)
    store.close()
    again = Store(tmp_path)
    assert again.events("friday") == [FIRST, *more]
    assert again.events("friday", 2) == more[1:]
    assert again.get() == kept("friday")
    assert (tmp_path / "rollouts.sqlite").stat().st_mode & 0o777 == 0o600


def test_a_rollouts_files_are_its_users_alone(tmp_path: Path) -> None:
    before = os.umask(0o000)
    try:
        store = Store(tmp_path)
        store.place("friday").mkdir(mode=0o755)  # a start that was killed
        (store.place("friday") / "fleet.json").touch(mode=0o644)
        store.begin(kept("friday"), HOSTS, FIRST, {"fleet.json": b"{}", "policy.yaml": b""})
    finally:
        os.umask(before)
    assert store.place("friday").stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in store.place("friday").iterdir()} == {0o600}
    assert (store.place("friday") / "fleet.json").read_bytes() == b"{}"


def test_who_has_not_seen_the_last_event_records_nothing(tmp_path: Path) -> None:
    one, other = Store(tmp_path), Store(tmp_path)
    one.begin(kept("friday"), HOSTS, FIRST)
    assert other.record("friday", 1, [paused("bob")])
    assert not one.record("friday", 1, [paused("alice"), paused("alice")])
    assert one.events("friday") == [FIRST, paused("bob")]


def test_many_who_record_at_once_lose_nothing(tmp_path: Path) -> None:
    Store(tmp_path).begin(kept("friday"), HOSTS, FIRST)

    def work(who: int) -> None:
        store = Store(tmp_path)
        for _ in range(25):
            while not store.record("friday", len(store.events("friday")), [paused(f"user{who}")]):
                pass

    threads = [threading.Thread(target=work, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [one.by for one in Store(tmp_path).events("friday") if isinstance(one, events.Paused)]
    assert sorted(found) == sorted(f"user{who}" for who in range(4) for _ in range(25))


def test_events_are_neither_changed_nor_removed(tmp_path: Path) -> None:
    Store(tmp_path).begin(kept("friday"), HOSTS, FIRST)
    db = sqlite3.connect(tmp_path / "rollouts.sqlite")
    for statement in ("UPDATE events SET event = '{}'", "DELETE FROM events"):
        with pytest.raises(sqlite3.IntegrityError, match="events are never"):
            db.execute(statement)


def test_an_overlap_is_refused_by_name_until_the_other_is_over(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.begin(kept("friday"), HOSTS, FIRST)
    alias = [("login", "192.0.2.9"), ("another-name", "192.0.2.2")]
    with pytest.raises(GpuprovError, match="the roll-out friday is open and has gpu002 too; nothing was started"):
        store.begin(kept("monday"), alias, FIRST)
    assert [one.id for one in store.all()] == ["friday"]
    with pytest.raises(GpuprovError, match="there is a roll-out friday already"):
        store.begin(kept("friday"), [("x", "192.0.2.200")], FIRST)
    assert store.record("friday", 1, [events.Finished(at=3.0)], over=True)
    store.begin(kept("monday"), alias, FIRST)
    assert store.get().id == "monday"


@run_each("name", ["", "../x", "a/b", "-x", "x" * 60, "ä", "a\n", "rollouts.sqlite", "rollouts.sqlite-wal"])
def test_an_id_is_a_name_of_a_folder_and_of_a_run(tmp_path: Path, name: str) -> None:
    with pytest.raises(GpuprovError, match="cannot be called"):
        Store(tmp_path).begin(kept(name), HOSTS, FIRST)


def test_another_gpuprovs_file_is_left_alone(tmp_path: Path) -> None:
    Store(tmp_path).close()
    db = sqlite3.connect(tmp_path / "rollouts.sqlite")
    db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(GpuprovError, match="format 99"):
        Store(tmp_path)


def test_a_full_disk_is_told_and_what_was_recorded_stays(tmp_path: Path) -> None:
    """The limit on a file's size stands for the disk that is full."""
    program = (
        "import resource, signal, sys; from pathlib import Path; from gpuprov.core.errors import GpuprovError;"
        "from tests.rollout import test_store as own; store = own.Store(Path(sys.argv[1]));"
        "store.begin(own.kept('friday'), own.HOSTS, own.FIRST);"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000));\n"
        "try: store.begin(own.kept('monday'), [('x', '192.0.2.200')], own.FIRST, {'fleet.json': bytes(30000)})\n"
        "except GpuprovError as error: print(error)"
    )
    ended = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    assert ended.stdout.startswith(f"{tmp_path} cannot be written: "), ended.stdout
    assert [one.id for one in Store(tmp_path).all()] == ["friday"]


KILLED = """
import sys
from pathlib import Path
from gpuprov.fleet.policy import events
from gpuprov.rollout.store import Store
store = Store(Path(sys.argv[1]))
seen = len(store.events("friday"))
while True:
    assert store.record("friday", seen, [events.Approved(at=1.0, step=str(seen), by=who) for who in "xy"])
    seen += 2
    print(seen, flush=True)
"""


def test_what_was_recorded_survives_a_kill_whole(tmp_path: Path) -> None:
    Store(tmp_path).begin(kept("friday"), HOSTS, FIRST)
    told = 1
    for _ in range(5):
        child = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert child.stdout
        for _ in range(20):
            told = int(child.stdout.readline())
        os.kill(child.pid, signal.SIGKILL)
        rest = child.communicate()[0].split()
        told = int(rest[-1]) if rest else told
        found = Store(tmp_path).events("friday")
        assert len(found) in (told, told + 2), "what was told is there, and at most one more pair"
        steps = [(one.step, one.by) for one in found[1:] if isinstance(one, events.Approved)]
        assert steps == [(str(n), by) for n in range(1, len(found), 2) for by in "xy"]
