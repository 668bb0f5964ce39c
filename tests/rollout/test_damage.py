"""A store of roll-outs that was damaged: it is told when it is opened, and nothing goes on as if there had been
none."""

from __future__ import annotations

import random
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuprov.core.errors import GpuprovError
from gpuprov.fleet.policy import events
from gpuprov.rollout.store import Store
from tests.commands import run_main
from tests.rollout.test_store import FIRST, HOSTS, kept

FLIPS = 300
PAGE = 4096


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Of a store with an open roll-out of some pages."""
    store = Store(tmp_path)
    store.begin(kept("friday"), HOSTS, FIRST, {"policy.yaml": b"x"})
    (store.place("friday") / "results").mkdir()
    store.record("friday", 1, [events.Paused(at=float(n), by="alice", why=f"reason {n} " * 20) for n in range(100)])
    store.close()
    db = sqlite3.connect(store.file)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    return store.file


def read(folder: Path) -> tuple[object, ...]:
    store = Store(folder)
    try:
        return store.get("friday"), store.events("friday")
    finally:
        store.close()


@pytest.mark.install
def test_no_damage_of_a_byte_is_more_than_an_error(file: Path) -> None:
    whole, numbers = file.read_bytes(), random.Random(20261128)
    told: list[GpuprovError] = []
    for _ in range(FLIPS):
        at = numbers.randrange(len(whole))
        file.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << numbers.randrange(8))]) + whole[at + 1 :])
        try:
            read(file.parent)
        except GpuprovError as error:
            told.append(error)
        for beside in file.parent.glob(f"{file.name}-*"):
            beside.unlink()
    assert len(told) > FLIPS / 10
    assert {error.exit_code for error in told} == {2}
    assert all(error.fix for error in told)


def test_a_page_that_is_zeroed_is_told(file: Path) -> None:
    whole = file.read_bytes()
    assert len(whole) > 5 * PAGE
    for at in range(0, len(whole), PAGE):
        file.write_bytes(whole[:at] + bytes(PAGE) + whole[at + PAGE :])
        with pytest.raises(GpuprovError, match=re.escape(str(file))) as refused:
            read(file.parent)
        assert "damaged" in refused.value.message
        assert "backup" in refused.value.fix
        for beside in file.parent.glob(f"{file.name}-*"):
            beside.unlink()


EVENTS: dict[str, Callable[[str], str]] = {
    "no JSON": lambda text: text.replace("{", "\x01", 1),
    "another kind": lambda text: text.replace("paused", "pausee"),
    "a number": lambda text: text.replace("alice", "ali\\ud8ce"),
    "nothing": lambda _: "",
}


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_that_is_none_is_named(file: Path, name: str) -> None:
    changed(file, "UPDATE events SET event = ? WHERE seq = 7", EVENTS[name])
    with pytest.raises(GpuprovError, match=r"damaged: event 7 of friday cannot be read"):
        read(file.parent)


def test_an_event_that_is_missing_is_named(file: Path) -> None:
    changed(file, "DELETE FROM events WHERE seq = 7 AND ? = ?", lambda text: text, twice=True)
    with pytest.raises(GpuprovError, match=r"damaged: event 7 of friday cannot be read: it is not there"):
        read(file.parent)


def changed(file: Path, statement: str, how: Callable[[str], str], *, twice: bool = False) -> None:
    db = sqlite3.connect(file)
    for (trigger,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        db.execute(f"DROP TRIGGER {trigger}")
    [(text,)] = db.execute("SELECT event FROM events WHERE seq = 7").fetchall()
    db.execute(statement, (how(text),) * (2 if twice else 1))
    db.commit()
    db.close()


@pytest.mark.parametrize("how", ["emptied", "removed"])
def test_a_store_that_was_lost_is_not_begun_anew_over_its_files(
    file: Path, how: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if how == "emptied":
        file.write_bytes(b"")
        told = "is damaged: it is empty, and beside it are the files of friday"
    else:
        file.unlink()
        told = "is missing: beside it are the files of friday"
    with pytest.raises(GpuprovError, match=told):
        Store(file.parent)
    state = file.parent / "state" / "gpuprov"
    monkeypatch.setenv("XDG_STATE_HOME", str(file.parent / "state"))
    (state / "rollout" / "friday").mkdir(parents=True)
    assert run_main(monkeypatch, "rollout", "status", "friday") == 2
    assert "is missing: beside it are the files of friday" in capsys.readouterr().err


def test_results_of_a_roll_out_that_is_not_known_are_not_gone_over(tmp_path: Path) -> None:
    store = Store(tmp_path)
    (tmp_path / "friday" / "results").mkdir(parents=True)
    with pytest.raises(GpuprovError, match="has results of a roll-out that"):
        store.begin(kept("friday"), HOSTS, FIRST, {"policy.yaml": b"x"})
    assert not store.all()


def test_a_begin_that_was_killed_is_begun_again(tmp_path: Path) -> None:
    store = Store(tmp_path)
    (tmp_path / "friday").mkdir()
    (tmp_path / "friday" / "policy.yaml").write_bytes(b"half")
    store.begin(kept("friday"), HOSTS, FIRST, {"policy.yaml": b"x"})
    assert (tmp_path / "friday" / "policy.yaml").read_bytes() == b"x"
