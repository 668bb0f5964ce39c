"""Exit codes, the log and the report of a run."""

from __future__ import annotations

import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest
from click.testing import CliRunner

from gpuprov import apply as applying
from gpuprov.apply import ApplyRun, HostOutcome, Options, as_text, command
from gpuprov.apply.log import Log
from gpuprov.apply.model import AppliedItem, State
from gpuprov.apply.outcome import judge
from gpuprov.cli import cli
from gpuprov.core.errors import GpuprovError
from gpuprov.plan.events import Failure, Ledger, Tally
from gpuprov.plan.extra import checked_run
from gpuprov.plan.playbook import Ended, environment
from gpuprov.report.files import state_folder
from gpuprov.verify.evaluate import Result, ResultStatus
from tests import documents
from tests.rows import run_each


def result(status: ResultStatus, reboot: str = "") -> Result:
    return Result(
        host="gpu1", capability="kernel", check="kernel.sysctl", status=status, found="1", expected="2", reboot=reboot
    )


@run_each(
    ("states", "status", "code"),
    [
        (["changed", "unchanged"], "pass", 0),
        (["unchanged"], "skip", 1),
        (["unchanged"], "n/a", 0),
        (["changed"], "fail", 1),
        (["changed"], "error", 1),
        (["unreachable", "changed"], "fail", 4),
        (["failed", "unreachable"], "pass", 3),
        (["blocked"], "pass", 3),
        (["locked", "changed"], "pass", 5),
        (["locked", "not-started"], "pass", 5),
        (["locked", "unreachable"], "pass", 4),
        (["locked", "failed"], "pass", 3),
        (["unreachable", "not-started"], "pass", 3),
        (["not-started"], "pass", 3),
    ],
)
def test_exit_codes(states: list[State], status: ResultStatus, code: int) -> None:
    hosts = [HostOutcome(host=f"gpu{n}", state=state, results=[result(status)]) for n, state in enumerate(states)]
    assert ApplyRun(run="r", hosts=hosts).exit_code == code
    assert ApplyRun(run="r", hosts=hosts, interrupted=True).exit_code == 130
    assert as_text(ApplyRun(run="r", hosts=[], interrupted=True)) == "interrupted: run it again to complete it"


@run_each(
    ("tally", "ended", "state", "message"),
    [
        (Tally(changed=["a"], failed=False), Ended("ended", 0), "changed", ""),
        (Tally(failed=False), Ended("ended", 2), "unchanged", ""),
        (Tally(failures=[Failure("kernel", "T", "no")], failed=True), Ended("ended", 2), "failed", "no"),
        (Tally(failures=[Failure("", "T", "taken", locked=True)], failed=True), Ended("ended", 2), "locked", "taken"),
        (Tally(failures=[Failure("kernel", "T", "no")], failed=False, rescued=1), Ended("ended", 0), "unchanged", ""),
        (Tally(unreachable="gone", failed=False), Ended("ended", 4), "unreachable", "gone"),
        (Tally(last="kernel: T"), Ended("interrupted", 130), "failed", "interrupted in kernel: T"),
        (Tally(), Ended("ended", 250), "failed", "it broke"),
        (None, Ended("ended", 4), "failed", "it broke"),
        (None, Ended("interrupted", 130), "not-started", ""),
    ],
)
def test_what_became_of_a_host(tally: Tally | None, ended: Ended, state: State, message: str) -> None:
    ledger = Ledger()
    ledger.complaint = "it broke"
    if tally:
        ledger.hosts["gpu1"] = tally
    outcome = HostOutcome(host="gpu1", state="not-started", ran={"kernel": "never applied"})
    judge(outcome, ledger, ended)
    assert (outcome.state, outcome.message) == (state, message)


@run_each(("reboot", "fix"), [(True, "see its console. When it is up again"), (False, "see why it does")])
def test_a_host_that_is_lost_after_a_failure_says_both(reboot: bool, fix: str) -> None:
    """A host that does not come back from its reboot: what failed is the reboot, and not what was to be done about
    it."""
    ledger = Ledger()
    why = Failure("", "Reboot the host", "Timed out waiting", reboot=reboot)
    ledger.hosts["gpu1"] = Tally(
        failures=[why], given_up_for=why, unreachable="no route", lost="act 3, Start again", failed=False
    )
    outcome = HostOutcome(host="gpu1", state="not-started")
    judge(outcome, ledger, Ended("ended", 4))
    assert (outcome.state, outcome.task) == ("unreachable", "Reboot the host")
    assert outcome.message == "Timed out waiting; then it was not reached: no route"
    assert outcome.fix.startswith(fix)


def test_an_interrupted_host_is_four_lines() -> None:
    """What was going on, the state, what still runs and how it ends, what to do: what follows from the interrupt is
    folded."""
    causes = [result("fail"), msgspec.structs.replace(result("fail"), check="kernel.modules", fix="load it")]
    following = msgspec.structs.replace(result("fail"), check="kernel.late", follows="kernel.sysctl")
    done = AppliedItem(capability="kernel", kind="file", name="/etc/a", after="written", state="done")
    late = AppliedItem(capability="kernel", kind="file", name="/etc/b", after="written", state="not done", why="failed")
    cut = HostOutcome(
        host="gpu1", state="failed", message="interrupted in kernel: Write", interrupted=True,
        left="still running there: dpkg",
        results=[*causes, following], items=[done, late], ran={"kernel": "x"}, changed=["kernel: Write"],
    )  # fmt: skip
    run = ApplyRun(run="r", hosts=[cut], interrupted=True, log=Path("/log"))
    assert applying.as_text(run).splitlines() == [
        "gpu1: failed: interrupted in kernel: Write",
        "  done: 1 file; 1 not done; verify: 2 checks fail (-v says which)",
        "  still running there: dpkg",
        "interrupted: run it again to complete it",
        "1 host: 1 failed; done: 1 file; 1 not done; 0.0 s",
        "log: /log",
    ]
    assert "load it" in applying.as_text(run, verbose=True)
    quiet = msgspec.structs.replace(cut, left="", results=[], items=[])
    assert applying.as_text(ApplyRun(run="r", hosts=[quiet], interrupted=True)).splitlines()[1:3] == [
        "  no change of the plan was made; not verified",
        "  nothing of the run is left there, and its lock was given back",
    ]
    read = documents.read_document(applying.build_document(run))
    assert read["hosts"][0]["fix"] == "still running there: dpkg"


def test_the_report_tells_hosts_that_fared_alike_once() -> None:
    alike = [HostOutcome(host=f"gpu{n}", results=[result("pass")]) for n in (1, 2, 3)]
    waiting = HostOutcome(
        host="gpu4",
        state="changed",
        changed=["kernel: Write"],
        seconds=3.0,
        results=[result("fail", "a new command line")],
    )
    wrong = HostOutcome(host="gpu5", state="changed", changed=["a", "b"], ran={"kernel": "x"}, results=[result("fail")])
    blocked = HostOutcome(
        host="gpu6", state="blocked", task="host.root", message="user id 1; wanted: root", fix="become"
    )
    run = ApplyRun(run="r", hosts=[*alike, waiting, wrong, blocked], seconds=4.25, log=Path("/log"))
    assert applying.as_text(run).splitlines() == [
        "gpu[1:3] (3 hosts): unchanged, verify is green",
        "gpu4: changed (1 task in 3 s), verify is not green",
        "  reboot required: a new command line",
        "gpu5: changed (2 tasks), verify is not green",
        "  fail kernel.sysctl: 1; wanted: 2",
        "gpu6: blocked: host.root: user id 1; wanted: root",
        "  fix: become",
        "6 hosts: 2 changed, 3 unchanged, 1 blocked; of these 1 waiting for a reboot (apply --reboot, or reboot: "
        "if-needed), 1 differs from its spec; 4.2 s",
        "log: /log",
    ]
    read = documents.read_document(applying.build_document(run))
    assert (read["exit_code"], read["log"], read["hosts"][3]["reboot_required"]) == (3, "/log", ["a new command line"])


def test_what_only_follows_is_named_under_its_cause_and_a_reboot_that_was_permitted_is_not_advised() -> None:
    cause = Result(
        host="gpu1",
        capability="nvidia_driver",
        check="nvidia_driver.loaded",
        status="fail",
        found="no",
        fix="reboot it",
    )
    following = [
        Result(host="gpu1", capability="mig", check=f"mig.{name}", status="fail", follows=cause.check)
        for name in ("mode", "cdi")
    ]
    outcome = HostOutcome(host="gpu1", state="changed", results=[cause, *following, result("fail", "a new module")])
    told = applying.as_text(ApplyRun(run="r", hosts=[outcome]))
    assert "  fail nvidia_driver.loaded: no\n    fix: reboot it\n  and 2 that follow: mig.mode, mig.cdi\n" in told
    assert "1 waiting for a reboot (apply --reboot, or reboot: if-needed)" in told
    outcome.reboot_permitted = True
    told = applying.as_text(ApplyRun(run="r", hosts=[outcome]))
    assert "1 still waiting for a reboot, which this run was permitted (reboot by hand, then verify)" in told
    assert "--reboot" not in told


def test_the_log_is_private_and_holds_no_secret(tmp_path: Path) -> None:
    with Log(tmp_path / "log", "r1", ["correct horse", "abc"]) as log:
        log.write("password is correct horse, abc\r\n\x1b[31mred\x1b[0m\x07")
    assert log.path.read_text() == "password is ********, abc\nred\\u0007\n"
    assert log.path.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o700


def test_break_lock_names_locks_and_without_a_name_breaks_none() -> None:
    """A lock's id is never empty: the bare option only has the message tell the id."""
    rows: list[tuple[list[str], tuple[str, ...]]] = [
        ([], ()),
        (["--break-lock"], ("",)),
        (["--break-lock", "0a1b2c3d", "--break-lock=r2"], ("0a1b2c3d", "r2")),
    ]
    for words, named in rows:
        with mock.patch("gpuprov.cli.options.load"), mock.patch("gpuprov.apply.run", return_value=0) as run:
            ended = CliRunner().invoke(cli, ["apply", "inventory.yaml", *words, "--yes"])
        assert ended.exit_code == 0, ended.output
        assert run.call_args.args[1].break_lock == named


def test_runs_of_one_name_that_begin_in_one_second_have_a_log_each(tmp_path: Path) -> None:
    """Jobs of a roll-out, which has one name."""
    logs = [Log(tmp_path, "friday") for _ in range(20)]
    assert len({log.path for log in logs}) == len([*tmp_path.iterdir()]) == 20
    assert all(log.path.name.startswith("20") and "-friday" in log.path.name for log in logs)
    for number, log in enumerate(logs):
        with log:
            log.write(str(number))
    assert [log.path.read_text() for log in logs] == [f"{number}\n" for number in range(20)]


def test_a_log_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(GpuprovError, match="cannot write the log"):
        Log(tmp_path / "file", "r1")


def test_without_a_home_the_log_is_in_no_folder_of_another_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "nowhere"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Log(None, "r1") as log:
        assert log.path.parent == tmp_path / f"gpuprov-{os.geteuid()}" / "log"
    (tmp_path / f"gpuprov-{os.geteuid()}").rename(tmp_path / "elsewhere")
    (tmp_path / f"gpuprov-{os.geteuid()}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(GpuprovError, match="is a link, or another user's"):
        Log(None, "r2")


def test_the_log_stands_where_the_xdg_specification_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert state_folder("log") == tmp_path / "gpuprov" / "log"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert state_folder("log") == Path.home() / ".local" / "state" / "gpuprov" / "log"


def test_options_of_the_command_line() -> None:
    given = {
        "full": True,
        "serial": None,
        "canary": "1",
        "max_fail": "10%",
        "as_json": True,
        "limit": "x",
        "log_dir": None,
    }
    options = Options.of(given, frozenset({"kernel"}))
    assert (options.full, options.serial, options.canary, options.max_fail) == (True, "", "1", "10%")
    assert options.only == frozenset({"kernel"})


def test_ansible_keeps_the_users_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANSIBLE_HOST_KEY_CHECKING", raising=False)
    prepared = {"ANSIBLE_HOST_KEY_CHECKING": "False", "PATH": "/bin", "ANSIBLE_SSH_ARGS": "-o ProxyJump=x"}
    found = environment(tmp_path, prepared, {})
    assert "ANSIBLE_HOST_KEY_CHECKING" not in found
    assert (found["ANSIBLE_SSH_ARGS"], found["ANSIBLE_PIPELINING"]) == ("-o ProxyJump=x", "true")
    said = {
        "ssh_connection.pipelining": "false",
        "defaults.interpreter_python": "/x",
        "ssh_connection.control_path": "/y",
    }
    found = environment(tmp_path, prepared, said)
    assert not {"ANSIBLE_PIPELINING", "ANSIBLE_PYTHON_INTERPRETER", "ANSIBLE_SSH_CONTROL_PATH_DIR"} & set(found)


def test_half_characters_of_a_host_do_not_end_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ansible-runner's events hold what a host printed in Latin-1 as halves of surrogate pairs."""
    from gpuprov.plan import playbook

    class Runner:
        rc = 2

        def __init__(self, config: Any, event_handler: Any) -> None:
            self.tell = event_handler

        def run(self) -> None:
            data: Any = {"host": "gpu01", "task": "t", "res": {"msg": "caf\udce9 is not there"}}
            self.tell({"event": "runner_on_failed", "event_data": data})
            self.tell(
                {"event": "playbook_on_stats", "event_data": {"processed": {"gpu01": 1}, "failures": {"gpu01": 1}}}
            )

    monkeypatch.setattr("ansible_runner.Runner", Runner)
    ledger, outcome = Ledger(), HostOutcome(host="gpu01", state="changed")
    (tmp_path / "runner").mkdir()

    def note(event: playbook.Event) -> None:
        ledger.feed(event)

    ended = playbook.run(tmp_path, ["gpu01"], {}, on_event=note)
    judge(outcome, ledger, ended)
    assert outcome.message == "caf� is not there"
    assert "caf� is not there" in applying.as_text(ApplyRun(run="r", hosts=[outcome]))


def test_a_run_that_prepares_is_not_judged_by_what_is_still_to_do() -> None:
    todo = HostOutcome(
        host="gpu1", state="prepared", ran={"nvidia_driver": "fails: packages"}, results=[result("fail")]
    )
    run = ApplyRun(run="r", hosts=[todo], act="prepare")
    assert (run.exit_code, run.again) == (0, [])
    told = as_text(run)
    assert "gpu1: prepared (nothing had to be changed); nothing in service was changed" in told
    assert "  still to do, by apply: nvidia_driver: fails: packages" in told
    assert "1 host: 1 prepared;" in told
    lost = HostOutcome(host="gpu2", state="failed", results=[result("fail")])
    assert ApplyRun(run="r", hosts=[todo, lost], act="prepare").again == ["gpu2"]


def test_locked_hosts_have_a_file_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    states: list[State] = ["changed", "locked", "failed"]
    hosts = [HostOutcome(host=f"gpu{n}", state=state) for n, state in enumerate(states)]
    monkeypatch.setattr(command, "apply", lambda *_args, **_more: ApplyRun(run="r", hosts=hosts))
    pairs: Any = [None] * 3
    assert command.run(pairs, Options(as_json=True)) == 3
    said = capsys.readouterr()
    assert json.loads(said.out)["locked"] == ["gpu1"]
    again, later = re.findall(r"@(\S+\.retry)", said.err)
    assert Path(again).read_text() == "gpu1\ngpu2\n"
    assert Path(later).read_text() == "gpu1\n"
    assert "1 of 3 hosts that another run works on, to do later: --limit @" in said.err


@run_each("name", ["", "-x", "a b", "a/b", "x" * 65, "a\n"])
def test_a_run_has_a_name_that_a_host_and_a_file_can_bear(name: str) -> None:
    with pytest.raises(GpuprovError, match="--run is"):
        checked_run(name)
    assert checked_run("Friday-2.1_b") == "Friday-2.1_b"


@run_each("width", [80, 120])
def test_a_terminal_gets_whole_words_and_a_pipe_whole_lines(width: int) -> None:
    found = (
        "GPUs without nvidia-container-toolkit-base, libnvidia-container-tools and nvidia-legacy-check: see the plan"
    )
    wrong = HostOutcome(host="gpu5", state="blocked", task="container_toolkit.resolvable", message=found, fix=found)
    run = ApplyRun(run="r", hosts=[wrong])
    shown = applying.as_text(run, width=width)
    assert max(map(len, shown.splitlines())) <= width
    assert shown.split() == applying.as_text(run).split()
    assert len(applying.as_text(run).splitlines()) == 3


@run_each(
    ("outcome", "shown", "last"),
    [
        (HostOutcome(host="a", state="failed", task="t", message="no"), "\x1b[31m failed", "\x1b[31m 1 failed"),
        (
            HostOutcome(host="a", state="changed", changed=["x"], results=[result("pass")]),
            "\x1b[32m changed ",
            "\x1b[32m 1 changed",
        ),
        (
            HostOutcome(host="a", state="changed", changed=["x"], results=[result("skip")]),
            "\x1b[33m changed ",
            "\x1b[33m 1 changed",
        ),
    ],
)
def test_colours_are_the_verdict_and_no_host_brings_its_own(outcome: HostOutcome, shown: str, last: str) -> None:
    run = ApplyRun(run="r", hosts=[msgspec.structs.replace(outcome, host="a\x1b[32mb")])
    told = applying.as_text(run, colour=True).splitlines()
    assert told[0].startswith(f"\x1b[1ma\\u001b[32mb:\x1b[0m{shown}\x1b[0m")
    assert told[-1].startswith(f"\x1b[1m1 host:\x1b[0m{last}")
    assert "\x1b" not in applying.as_text(run)


def test_a_host_that_nothing_was_done_on_is_counted_once() -> None:
    """It was read, and differs from its spec as before: that is not a second host."""
    rows = [result("fail"), result("skip")]
    blocked = HostOutcome(host="gpu1", state="blocked", message="no engine", results=rows)
    run = ApplyRun(run="r", hosts=[blocked], seconds=1.0)
    assert applying.as_text(run).splitlines()[-1] == "1 host: 1 blocked; 1.0 s"
    run.hosts = [HostOutcome(host="gpu1", state="changed", changed=["a"], results=[result("skip")])]
    assert applying.as_text(run).splitlines()[-1] == "1 host: 1 changed; of these 1 not fully proven; 1.0 s"
