"""Roll-outs whose folder was damaged or removed: the others are told, and each can be brought to an end."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpuprov.core.errors import GpuprovError
from gpuprov.fleet.policy import events
from gpuprov.fleet.policy.policy import read
from gpuprov.jobs.model import digest_of
from gpuprov.rollout import project
from gpuprov.rollout.store import Store
from tests.commands import run_main
from tests.rollout import made

POLICY = b"gpuprov_rollout: 1\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the roll-out fri; beside it is sat, of another host."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = tmp_path / "gpuprov" / "rollout"
    store = Store(folder)
    begin(store, "fri", 0)
    begin(store, "sat", 1)
    store.close()
    return folder / "fri"


def begin(store: Store, name: str, host: int) -> None:
    fleet = made.fleet(2)
    fleet = msgspec.structs.replace(fleet, hosts=fleet.hosts[host : host + 1])
    fleet = msgspec.structs.replace(fleet, digest=digest_of(fleet))
    given = project.Given(words=("false",))
    project.begin(store, project.Project(name, fleet, read(POLICY, "policy.yaml"), given), POLICY, 1000.0 + host)


def gpuprov(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    return run_main(monkeypatch, "rollout", *words)


def damage(place: Path, how: str) -> None:
    if how == "folder":
        shutil.rmtree(place)
    elif how == "a file":
        shutil.rmtree(place)
        place.write_text("x")
    else:
        (place / how).write_text("x")


HOW = ["fleet.json", "policy.yaml", "given.json", "folder", "a file"]


@pytest.mark.parametrize("how", HOW)
def test_the_others_are_listed_and_the_damaged_one_is_named(
    place: Path, how: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(place, how)
    assert gpuprov(monkeypatch, "status", "--all") == 2
    said = capsys.readouterr()
    assert "fri: damaged, 1 host, begun" in said.out
    assert "sat: left, 1 host, begun" in said.out
    assert "the roll-out fri is damaged: " in said.err
    assert gpuprov(monkeypatch, "status", "sat") == 0
    capsys.readouterr()
    assert gpuprov(monkeypatch, "status", "--all", "--json") == 2
    told: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    assert [one["id"] for one in told] == ["fri", "sat"]
    assert [bool(one["damaged"]) for one in told] == [True, False]


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("words", [("status", "fri"), ("resume", "fri", "--retry"), ("watch", "fri"), ("pause", "fri")])
def test_what_needs_the_files_says_two_ways_out(
    place: Path, how: str, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(place, how)
    assert gpuprov(monkeypatch, *words) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: the roll-out fri is damaged: ")
    assert "Errno" not in said
    assert f"fix: put {place} back from a backup; or end it: gpuprov rollout abort fri\n" in said
    if how == "folder":
        assert f"its folder {place} is missing" in said


@pytest.mark.parametrize("how", HOW)
def test_it_can_be_ended_and_its_hosts_are_free_for_another(
    place: Path, how: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(place, how)
    assert gpuprov(monkeypatch, "abort", "fri", "--why", "a broken disk") == 3
    said = capsys.readouterr()
    assert "fri: aborted by " in said.out
    assert ": a broken disk" in said.out
    begin(Store(place.parent), "sun", 0)
    assert gpuprov(monkeypatch, "status", "--all") == 0
    assert "fri: aborted, its files are damaged, 1 host" in capsys.readouterr().out
    assert gpuprov(monkeypatch, "abort", "fri") == 2
    assert "the roll-out fri is over" in capsys.readouterr().err
    assert gpuprov(monkeypatch, "status", "fri") == 2
    assert "abort" not in capsys.readouterr().err


def test_hosts_that_it_had_are_named_at_its_end(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one = ("gpu0000",)
    Store(place.parent).record(
        "fri", 1, [events.Draining(at=2.0, hosts=one), events.Working(at=3.0, job=1, act="apply", hosts=one)]
    )
    damage(place, "fleet.json")
    assert gpuprov(monkeypatch, "abort", "fri", "--json") == 3
    said = capsys.readouterr()
    assert "gpu0000: drained by it, and not given back" in said.err
    assert "gpuprov undrain gpu0000 INVENTORY --by SCHEDULER --run fri" in said.err
    assert "gpu0000: it was at work there, and its result is not known" in said.err
    told = json.loads(said.out)
    assert (told["id"], told["state"], told["exit_code"]) == ("fri", "aborted", 3)


def test_it_is_not_ended_while_a_process_of_it_works(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "jobs").mkdir()
    damage(place, "fleet.json")
    with (place / "jobs" / "0001.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert gpuprov(monkeypatch, "abort", "fri") == 2
    assert "fri still has a process at work" in capsys.readouterr().err
    assert gpuprov(monkeypatch, "abort", "fri") == 3


def test_an_engine_that_is_at_work_brings_it_to_its_end(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(place, "fleet.json")
    with (place / "engine.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert gpuprov(monkeypatch, "abort", "fri") == 0
    assert "another process brings it to its end" in capsys.readouterr().err
    assert isinstance(Store(place.parent).events("fri")[-1], events.Aborted)
    assert Store(place.parent).get("fri").open


@pytest.mark.parametrize("words", [("status", "fri"), ("resume", "fri"), ("abort", "fri")])
def test_a_pipe_in_the_place_of_the_lock_is_refused(
    place: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(place / "engine.lock")
    assert gpuprov(monkeypatch, *words) == 2
    assert f"error: {place}/engine.lock is not a regular file\nfix: remove it" in capsys.readouterr().err


def test_a_frozen_fleet_of_another_gpuprov_is_told_as_that(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (place / "fleet.json").read_text()
    (place / "fleet.json").write_text(text.replace('"gpuprov_fleet":1', '"gpuprov_fleet":999', 1))
    assert gpuprov(monkeypatch, "resume", "fri") == 2
    said = capsys.readouterr().err
    assert "is a frozen fleet of gpuprov" in said
    assert "fix: go on with the gpuprov that began it; or end it: gpuprov rollout abort fri" in said


def test_a_store_that_is_missing_is_said_to_be_missing(place: Path) -> None:
    for file in place.parent.glob("rollouts.sqlite*"):
        file.unlink()
    for _ in range(2):
        with pytest.raises(GpuprovError, match="is missing: beside it are the files of fri, sat"):
            Store(place.parent)
