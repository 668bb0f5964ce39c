"""Daemons of real processes of this machine, and units that set something; systemctl and journalctl are stand-ins."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.here import program
from tests.host_code.modules import on_host, ran

SYSTEMCTL = """
case "$*" in
*UnitFileState*)
  load=loaded; [ ! -e "$STATE/absent" ] || load=not-found; file=$(cat "$STATE/enabled" 2> /dev/null || echo disabled)
  printf 'Id=x\nLoadState=%s\nNeedDaemonReload=%s\nActiveState=%s\nUnitFileState=%s\n' \
    $load "$(cat "$STATE/reload")" "$(cat "$STATE/state")" "$file" ;;
*NeedDaemonReload*) cat "$STATE/reload" ;;
*ControlGroup*) cat "$STATE/group" ;;
*MainPID*) cat "$STATE/main" ;;
*ActiveState*) cat "$STATE/state" ;;
*LoadState*) [ -e "$STATE/absent" ] && echo not-found || echo loaded ;;
disable*) [ ! -e "$STATE/masked" ] || { echo 'Access denied' >&2; exit 1; }
  rm -f "$STATE/enabled" ;;
stop*) echo inactive > "$STATE/state" ;;
is-active*) [ "$(cat "$STATE/state")" = active ] ;;
is-enabled*) [ ! -e "$STATE/enabled" ] && echo disabled && exit 1; cat "$STATE/enabled" ;;
enable*) [ ! -e "$STATE/masked" ] || { echo 'Unit is masked.' >&2; exit 1; }; echo enabled > "$STATE/enabled" ;;
daemon-reload) echo no > "$STATE/reload"; echo reload >> "$STATE/log" ;;
restart* | reload-or-restart*) echo "$1" >> "$STATE/log"
  [ ! -e "$STATE/after" ] || cp "$STATE/after" "$STATE/main"
  exit "$(cat "$STATE/status")" ;;
esac
"""
JOURNAL = """\
roce: port 1: pfc is none, expected 3
roce: mlx5_0 port 1 is not as asked for
gpuprov-roce.service: Main process exited
"""
ROCE = {
    "name": "gpuprov-roce.service",
    "state": "ran",
    "program": "roce",
    "fix": "correct what it reports and apply again",
}
Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program(tmp_path, "systemctl", SYSTEMCTL)
    journal(tmp_path, JOURNAL)
    for name, text in {"reload": "no", "group": "", "main": "0", "state": "active", "status": "0"}.items():
        (tmp_path / name).write_text(f"{text}\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("STATE", str(tmp_path))
    return tmp_path


def journal(place: Path, text: str) -> None:
    program(place, "journalctl", f"[ $1 != --sync ] || exit\necho \"$*\" >> $STATE/asked\ncat << 'END'\n{text}END\n")


@pytest.fixture
def ask(place: Path, capsys: pytest.CaptureFixture[str]) -> Ask:
    return lambda **asked: ran(capsys, "gpuprov_unit", **{"name": "thing.service", **asked})


def log(place: Path) -> list[str]:
    return (place / "log").read_text().split() if (place / "log").exists() else []


def put(place: Path, name: str, text: object) -> None:
    (place / name).write_text(f"{text}\n")


@pytest.fixture
def process(place: Path) -> Iterator[subprocess.Popen[bytes]]:
    (place / "nv-thing").symlink_to("/bin/sleep")
    (place / "settings").mkdir()
    (place / "settings" / "conf").write_text("before")
    time.sleep(0.05)
    with subprocess.Popen([str(place / "nv-thing"), "60"]) as started:
        put(place, "main", started.pid)
        yield started
        started.kill()


def observed(ask: Ask, place: Path, **more: Any) -> str:
    found = ask(state="observed", files=[str(place / "settings"), str(place / "nv-thing"), "/no/such/file"], **more)
    assert found["changed"] is False
    return str(found["daemon"])


@pytest.mark.install
def test_a_daemon_is_alive_old_or_dead(place: Path, ask: Ask, process: subprocess.Popen[bytes]) -> None:
    assert observed(ask, place) == "alive"
    put(place, "state", "failed")
    assert observed(ask, place) == "dead"
    put(place, "state", "active")
    time.sleep(0.3)
    (place / "settings" / "conf").write_text("after")
    assert observed(ask, place) == "old"
    put(place, "main", 0)
    assert observed(ask, place) == "dead"


RENEWALS: dict[str, tuple[dict[str, Any], bool]] = {
    "as it is": ({}, False),
    "as the spec says": ({"differs": "active with --no-persistence-mode"}, True),
    "after a file of this run": ({"written": ["/settings/conf"]}, True),
    "after another's file": ({"written": ["/settings2"]}, False),
}


@pytest.mark.install
@pytest.mark.parametrize("state", ["alive", "renewed"])
@pytest.mark.parametrize("way", RENEWALS)
def test_a_daemon_is_renewed(way: str, state: str, place: Path, ask: Ask, process: subprocess.Popen[bytes]) -> None:
    more, renewed = RENEWALS[way]
    given = {
        **more,
        "files": [str(place / "settings")],
        "written": [f"{place}{one}" for one in more.get("written", ())],
    }
    assert ask(state=state, **given, check=True)["changed"] is renewed
    assert log(place) == []
    assert ask(state=state, **given)["changed"] is renewed
    assert ("restart" in log(place)) is renewed
    put(place, "state", "inactive")
    assert ask(state=state, **given, check=True)["changed"] is (state == "alive"), "whether it runs is the site's"


def test_one_among_the_processes_of_a_unit(place: Path, ask: Ask, process: subprocess.Popen[bytes]) -> None:
    put(place, "group", Path(f"/proc/{process.pid}/cgroup").read_text().splitlines()[-1].partition("::")[2] or "/")
    for name, wanted in (("nv-thing", "alive"), ("nv-thin", "dead"), ("thing", "dead"), ("nv.thing", "dead")):
        assert observed(ask, place, process=name) == wanted, name
    put(place, "group", "/no/such/group")
    assert observed(ask, place, process="nv-thing") == "dead"
    put(place, "group", "")
    assert observed(ask, place, process="nv-thing") == "dead", "a unit without a group has no processes"


def test_a_users_group_whose_name_ends_as_the_units_does_is_not_the_units(
    place: Path, ask: Ask, process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    units = on_host("units")
    read, put_at = units._read, "/system.slice/thing.service"
    put(place, "group", put_at)
    for before, wanted in (("", "alive"), ("/user.slice/user@1000.service/x:", "dead")):
        monkeypatch.setattr(
            units, "_read", lambda path, at=before: f"0::{at}{put_at}\n" if "cgroup" in path else read(path)
        )
        assert observed(ask, place, process="nv-thing") == wanted


def test_a_zombie_is_dead(place: Path, ask: Ask) -> None:
    with subprocess.Popen(["true"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        put(place, "main", ended.pid)
        assert ask(state="observed")["daemon"] == "dead"


def test_a_dead_daemon_is_started(place: Path, ask: Ask, process: subprocess.Popen[bytes]) -> None:
    put(place, "main", 0)
    put(place, "after", process.pid)
    planned = ask(state="alive", check=True)
    assert (planned["changed"], log(place)) == (True, [])
    assert ask(state="alive") == {**planned, "changed": True, "daemon": "dead"}
    assert log(place) == ["reload", "restart"]


def test_a_daemon_that_does_not_stay_alive_is_said(place: Path, ask: Ask) -> None:
    put(place, "status", 1)
    said = " | ".join(JOURNAL.splitlines())
    refused = ask(state="alive", fix="journalctl -u thing")["msg"]
    assert refused == f"thing.service does not stay alive, it is dead ({said}). Fix: journalctl -u thing"


def test_a_daemon_that_lives_is_asked_until_it_answers(
    place: Path, ask: Ask, process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)
    program(
        place,
        "talk",
        'echo x >> "$STATE/tries"; [ "$(wc -l < "$STATE/tries")" -lt 3 ] || echo "2 GPUs found."; echo lost >&2',
    )
    asked = {"state": "alive", "ask": ["talk"], "fix": "look"}
    assert not ask(**asked, answer="GPUs? found", check=True)["changed"]
    assert not (place / "tries").exists()
    assert not ask(**asked, answer="GPUs? found")["changed"]
    assert (place / "tries").read_text() == "x\nx\nx\n"
    refused = ask(**asked, answer="switches found")["msg"]
    assert refused == "thing.service lives and does not answer talk: 2 GPUs found.\n lost. Fix: look"
    put(place, "main", 0)
    put(place, "after", process.pid)
    missing = ask(state="alive", ask=["no-such-program"])["msg"]
    assert "does not answer no-such-program: [Errno 2]" in missing
    assert log(place) == ["reload", "restart"]


def test_it_is_enabled_with_its_file_as_it_is_now(place: Path, ask: Ask, process: subprocess.Popen[bytes]) -> None:
    put(place, "reload", "yes")
    assert ask(state="alive", enabled=True, check=True)["changed"]
    assert not (place / "enabled").exists()
    assert ask(state="alive", enabled=True)["changed"]
    assert (place / "enabled").exists()
    assert log(place) == ["reload"]
    assert not ask(state="alive", enabled=True)["changed"]
    put(place, "enabled", "enabled-runtime")
    assert ask(state="alive", enabled=True, check=True)["changed"], "/run is empty at the next boot"
    assert ask(state="alive", enabled=True)["changed"]
    assert (place / "enabled").read_text() == "enabled\n"
    for said, changes in (("alias", False), ("generated", False), ("static", True), ("indirect", True)):
        put(place, "enabled", said)
        assert ask(state="alive", enabled=True, check=True)["changed"] == changes, said
    (place / "enabled").unlink()
    (place / "masked").touch()
    assert "systemctl enable thing.service failed: Unit is masked." in ask(state="alive", enabled=True)["msg"]
    for said, flag in (("masked", ""), ("masked-runtime", " --runtime")):
        put(place, "enabled", said)
        refused = ask(state="alive", enabled=True)["msg"]
        assert refused.endswith(f"a person's. Fix: systemctl unmask{flag} thing.service, then apply again")


def test_nothing_is_done_where_nothing_differs(place: Path, ask: Ask) -> None:
    for check in (False, True):
        found = ask(**ROCE, check=check)
        assert (found["changed"], "msg" in found, log(place)) == (False, False, [])


@pytest.mark.parametrize(
    ("differs", "state", "said"),
    [
        ("pfc: none -> 3", "active", "set pfc: none -> 3"),
        ("", "failed", "run gpuprov-roce.service, which is failed"),
        ("", "", "run gpuprov-roce.service, which is not there yet"),
    ],
)
def test_it_runs_where_something_differs_or_it_did_not_run(
    place: Path, ask: Ask, differs: str, state: str, said: str
) -> None:
    put(place, "state", state)
    planned = ask(**ROCE, differs=differs, check=True)
    assert (planned["changed"], planned["msg"], log(place)) == (True, f"would {said}", [])
    found = ask(**ROCE, differs=differs)
    assert (found["changed"], found["msg"], log(place)) == (True, said, ["reload", "reload-or-restart"])


def test_what_was_run_is_asked_whether_it_lives(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """opensm's unit is active without a process where it found no port as it started."""
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)
    heard = {"ask": ["echo", "opensm"], "answer": "opensm"}
    assert ask(**ROCE, **heard, differs="opensm")["changed"]
    refused = ask(**ROCE, **{**heard, "ask": ["echo", "nothing"]}, differs="opensm")
    assert "does not answer echo nothing: nothing. Fix: correct" in refused["msg"]
    assert ask(**ROCE, **{**heard, "ask": ["false"]}, differs="opensm", check=True)["changed"]


def test_a_failure_is_told_with_what_the_program_said_last(place: Path, ask: Ask) -> None:
    put(place, "status", 1)
    refused = ask(**ROCE, differs="pfc: none -> 3")
    assert refused["msg"].startswith(
        "gpuprov-roce.service failed: roce: mlx5_0 port 1 is not as asked for. Fix: correct"
    )
    assert " --since @" in (place / "asked").read_text()


def test_a_unit_that_was_ended_is_not_told_with_what_it_said_another_time(place: Path, ask: Ask) -> None:
    """A unit that ran out of time leaves no line of its own: that of an earlier run, for another reason, would
    mislead."""
    put(place, "status", 1)
    ended = (
        "gpuprov-roce.service: start operation timed out. Terminating.\ngpuprov-roce.service: Failed with "
        "result 'timeout'.\n"
    )
    journal(place, ended)
    assert (
        "failed: gpuprov-roce.service: start operation timed out. Terminating.; gpuprov-roce.service: Failed"
        in ask(**ROCE, differs="pfc: none -> 3")["msg"]
    )
    journal(place, "")
    assert "failed: it said nothing. Fix" in ask(**ROCE, differs="x")["msg"]


def test_a_unit_is_started_where_it_does_not_run(place: Path, ask: Ask) -> None:
    assert (ask(state="started")["changed"], log(place)) == (False, [])
    put(place, "state", "inactive")
    assert (ask(state="started", check=True)["changed"], log(place)) == (True, [])
    assert (ask(state="started")["changed"], log(place)) == (True, ["reload", "restart"])
    put(place, "state", "active")
    assert (ask(state="restarted")["changed"], log(place)) == (True, ["reload", "restart"] * 2)
    put(place, "status", 1)
    refused = ask(state="restarted", fix="see the journal")
    assert refused["msg"].startswith("thing.service does not start: ")
    assert refused["msg"].endswith("Fix: see the journal")


def test_units_of_files_are_on_or_off(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_host("systemd"), "FILES", f"{place}/")

    def files(**asked: Any) -> dict[str, Any]:
        return ran(capsys, "gpuprov_files", **asked)

    put(place, "enabled", "enabled")
    would = files(disabled=["thing.service"], check=True)
    assert (would["changed"], would["units"]) == (True, ["thing.service"])
    assert would["diff"][0]["before"] == "thing.service on\n"
    assert files(disabled=["thing.service"])["changed"] is True
    assert not (place / "enabled").exists()
    assert files(disabled=["thing.service"])["changed"] is False
    put(place, "enabled", "enabled")
    (place / "absent").touch()
    assert files(disabled=["thing.service"])["changed"] is False, "one that is not there is off"
    (place / "absent").unlink()
    (place / "masked").touch()
    assert "systemctl disable thing.service failed: Access denied" in files(disabled=["thing.service"])["msg"]
    (place / "masked").unlink()
    (place / "enabled").unlink()
    written = files(files={str(place / "thing.service"): "[Install]\n"}, enabled=["thing.service"])
    assert (written["units"], log(place)) == (["thing.service"], ["reload"])
    assert files(files={str(place / "thing.service"): "[Install]\n"}, enabled=["thing.service"])["changed"] is False
    assert log(place) == ["reload"], "nothing was written: nothing to read"


def test_an_answer_that_is_in_nobodys_hand_is_waited_for_once(
    place: Path, ask: Ask, process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A licence: the daemon was started, and whether the licence came is for verify to say."""
    monkeypatch.setattr(on_host("units").wait_for_answer, "__defaults__", (2, 0))
    asked = {"state": "alive", "ask": ["echo", "none"], "answer": "Licensed", "unanswered": "no licence yet"}
    assert "warnings" not in ask(**asked), "it was not started now"
    put(place, "main", 0)
    put(place, "after", process.pid)
    found = ask(**asked)
    assert (found["changed"], found.get("failed")) == (True, None)
    assert found["warnings"] == ["no licence yet: echo none did not say so within half a minute"]
    put(place, "main", 0)
    assert ask(**{**asked, "unanswered": ""})["failed"]
