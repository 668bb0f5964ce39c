"""`gpuprov rollout` on the command line, over stub hosts: what it says, and how it ends."""

from __future__ import annotations

import getpass
import json
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from gpuprov.cli.reference import document_schema
from gpuprov.fleet.policy import events
from gpuprov.fleet.policy.state import Job
from gpuprov.rollout import addresses, command, engine, project, store
from gpuprov.rollout import approvals as said
from gpuprov.rollout.embedded import Embedded
from gpuprov.rollout.jobs import Worker
from tests.commands import run_main
from tests.rollout import made

INVENTORY = """\
all:
  vars: {gpuprov: {nouveau: {}}}
  hosts:
    train[1:4].dc1.example.com: {rack: r1}
    train[5:6].dc1.example.com: {rack: r2}
"""
STUB = Path(__file__).with_name("stub.py")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an inventory and a policy, where jobs are done by the stub."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("STUB", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "inventory.yaml").write_text(INVENTORY)
    (tmp_path / "behaviour.json").write_text("{}")
    (tmp_path / "rollout.yaml").write_text("gpuprov_rollout: 1\ndomain: rack\nbatches: {by_domain: true}\n")
    real = project.Given

    def given(*, words: tuple[str, ...], folder: str) -> Any:
        assert words[1:6] == ("-P", "-m", "gpuprov", "fleet", "work")
        return real(words=(words[0], str(STUB), *words[6:]), folder=folder)

    monkeypatch.setattr(command, "Given", given)
    monkeypatch.setattr(addresses, "_list_numbers", lambda _host, _port: ())
    monkeypatch.setattr("gpuprov.rollout.embedded.Engine", partial(engine.Engine, tick=0.02))
    return tmp_path


def gpuprov(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    return run_main(monkeypatch, "rollout", *words)


def start(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    return gpuprov(monkeypatch, "start", "inventory.yaml", "--policy", "rollout.yaml", "--id", "friday", "-y", *words)


@pytest.mark.install
@pytest.mark.usefixtures("site")
def test_a_roll_out_from_its_beginning_to_its_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert start(monkeypatch) == 0
    said = capsys.readouterr()
    assert "batch 2: train5.dc1.example.com, train6.dc1.example.com (2 hosts)" in said.err
    assert "batch 1 is over: 4 green" in said.err
    assert said.out.splitlines()[0] == "friday: finished"
    assert gpuprov(monkeypatch, "status", "friday", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    jsonschema.validate(told, msgspec.json.decode(document_schema("rollout-status")))
    assert {host["state"] for host in told["hosts"]} == {"green"}
    assert start(monkeypatch) == 2
    assert "the roll-out friday is over" in capsys.readouterr().err


@pytest.mark.install
def test_a_failure_stops_it_and_is_named_in_80_columns(
    site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (site / "behaviour.json").write_text(json.dumps({"train2.dc1.example.com": ["failed", "green"]}))
    assert start(monkeypatch) == 3
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert out.startswith("friday: stopped: batch 1: 1 failed, budget.batch is 0: train2.dc1.example.com\n")
    assert "failed: train2.dc1.example.com: nvidia_driver: Install the set: apt-get ended" in out
    assert "--retry" in out
    assert gpuprov(monkeypatch, "status") == 3
    assert gpuprov(monkeypatch, "resume") == 2
    assert "--forgive" in capsys.readouterr().err
    assert gpuprov(monkeypatch, "resume", "--retry") == 0
    assert made.attempts(site) == {f"train{n}.dc1.example.com": 1 + (n == 2) for n in range(1, 7)}


@pytest.mark.install
def test_who_goes_on_from_another_folder_works_in_that_of_the_start(
    site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """ansible.cfg, keys and the vault's password file are named from there."""
    (site / "behaviour.json").write_text(json.dumps({"train2.dc1.example.com": ["failed"] * 2 + ["green"]}))
    assert start(monkeypatch) == 3
    monkeypatch.chdir("/")
    assert gpuprov(monkeypatch, "resume", "--retry") == 3
    assert ({*(site / "folders").read_text().split()}, Path.cwd()) == ({str(site)}, Path("/"))
    given = next((site / "state").rglob("given.json"))
    given.write_text(given.read_text().replace(f'"folder":"{site}"', '"folder":"/no/such/place"'))
    assert gpuprov(monkeypatch, "resume", "--retry") == 0
    assert (
        "/no/such/place, where it was begun, cannot be entered (No such file or directory)" in capsys.readouterr().err
    )


@pytest.mark.install
def test_an_overlap_is_refused_by_name(
    site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (site / "behaviour.json").write_text(json.dumps({"train1.dc1.example.com": ["failed"]}))
    assert start(monkeypatch) == 3
    words = (
        "start",
        "inventory.yaml",
        "--policy",
        "rollout.yaml",
        "--id",
        "monday",
        "-y",
        "--limit",
        "train1*,train2*",
    )
    assert gpuprov(monkeypatch, *words) == 2
    said = capsys.readouterr().err
    assert (
        "the roll-out friday is open and has train1.dc1.example.com, train2.dc1.example.com too; nothing was started"
        in said
    )
    assert gpuprov(monkeypatch, "abort", "--why", "another day") == 3
    assert gpuprov(monkeypatch, *words) == 3, "begun, and stopped by the host that fails"
    assert made.attempts(site)["train1.dc1.example.com"] == 2


@pytest.mark.install
def test_the_same_start_goes_on_and_another_inventory_does_not(
    site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def killed(_self: object) -> None:
        raise SystemExit(9)

    with monkeypatch.context() as patched:
        patched.setattr("gpuprov.rollout.engine.Engine._step", killed)
        assert start(patched) == 9
    assert gpuprov(monkeypatch, "status") == 0
    assert "friday: left" in capsys.readouterr().out
    assert gpuprov(monkeypatch, "watch") == 1, "nobody carries it out: what comes after a green roll-out does not begin"
    text = (site / "inventory.yaml").read_text()
    (site / "inventory.yaml").write_text(text.replace("train[5:6]", "train[5:7]"))
    assert start(monkeypatch) == 2
    assert "the roll-out friday was begun with another inventory" in capsys.readouterr().err
    (site / "inventory.yaml").write_text(text)
    assert start(monkeypatch) == 0
    assert "going on, 6 hosts" in capsys.readouterr().err


@pytest.mark.install
def test_who_may_approve_does(site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("SUDO_USER", raising=False)
    policy = f"gpuprov_rollout: 1\ncanary: {{count: 1}}\napprovals: [{{before: batches, by: [{getpass.getuser()}]}}]\n"
    (site / "rollout.yaml").write_text(policy)
    answers: list[bool] = []

    def other() -> None:
        kept = store.Store(site / "state" / "gpuprov" / "rollout")
        while not any(isinstance(one, events.BatchOver) for one in kept.events("friday")):
            time.sleep(0.05)
        answers.append(bool(command.say(Embedded(), "friday", said.Approve(by=getpass.getuser()))))

    thread = threading.Thread(target=other)
    thread.start()
    assert start(monkeypatch) == 0
    thread.join()
    assert answers == [True]
    assert f'waits for the approval of "batches" by {getpass.getuser()}\n' in (err := capsys.readouterr().err)
    assert 'fix: gpuprov rollout approve friday "batches"' in err


def test_who_may_not_approve_is_told_who_may(
    site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (site / "rollout.yaml").write_text("gpuprov_rollout: 1\napprovals: [{before: canary, by: [nobody-else]}]\n")
    monkeypatch.setattr("gpuprov.rollout.engine.Engine._step", lambda _self: "over")
    assert start(monkeypatch) == 0
    assert gpuprov(monkeypatch, "approve", "friday") == 2
    assert '"canary" is approved by nobody-else; you are' in capsys.readouterr().err
    assert gpuprov(monkeypatch, "pause", "friday", "--why", "lunch") == 0
    assert gpuprov(monkeypatch, "status", "--all") == 0
    assert "friday: paused, 6 hosts" in capsys.readouterr().out


def test_what_hosts_say_drives_no_terminal(
    site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("gpuprov.rollout.engine.Engine._step", lambda _self: "over")
    assert start(monkeypatch) == 0
    kept = store.Store(site / "state" / "gpuprov" / "rollout")
    name = "train1.dc1.example.com"
    ends = (events.HostEnd(name, "failed", "failed", "\x1b[2Jgreen"),)
    assert kept.record(
        "friday", 1, [events.Working(at=2.0, job=1, act="apply", hosts=(name,)), events.Done(at=3.0, job=1, hosts=ends)]
    )
    gpuprov(monkeypatch, "watch", "friday")
    said = capsys.readouterr()
    assert "\x1b" not in said.out + said.err
    assert "\\u001b[2Jgreen" in said.out


def test_a_domain_that_nothing_is_called_is_the_policys(
    site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (site / "rollout.yaml").write_text("gpuprov_rollout: 1\nsite: hall\n")
    assert start(monkeypatch) == 2
    assert capsys.readouterr().err.startswith("error: the policy's site: no group")


def test_the_command_that_lists_roll_outs_lists_them(
    site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gpuprov(monkeypatch, "pause") == 2
    named = capsys.readouterr().err.rpartition("; gpuprov rollout ")[2].partition(" lists them")[0]
    assert (gpuprov(monkeypatch, *named.split()), capsys.readouterr().out) == (0, "no roll-outs\n")


@pytest.mark.parametrize("text", ["", "gpuprov_rollout: 1\nbatchs: {}\n"])
def test_a_wrong_policy_begins_nothing(site: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    (site / "rollout.yaml").write_text(text)
    assert start(monkeypatch) == 2
    assert not (site / "state").exists()


@pytest.mark.install
def test_ctrl_c_pauses_and_waits_for_what_is_under_way(site: Path) -> None:
    begun = made.begun(site / "made", 4, "batches: {size: 2}\n", {"seconds": 0.5})
    driver = f"from pathlib import Path; from tests.rollout import made; made.carry_out(Path({str(site / 'made')!r}))"
    child = subprocess.Popen([sys.executable, "-c", driver], cwd=Path(__file__).parents[2], stderr=subprocess.PIPE)
    while not made.at_work(site / "made"):
        time.sleep(0.02)
    os.kill(child.pid, 2)
    child.communicate(timeout=60)
    kept = store.Store(site / "made" / "state").events(begun.id)
    assert any(isinstance(one, events.Paused) and one.why == "Ctrl-C" for one in kept)
    assert made.attempts(site / "made") == {"gpu0000": 1, "gpu0001": 1}
    assert not made.at_work(site / "made"), "what was under way came to its end"


@pytest.mark.install
def test_a_ctrl_c_that_comes_where_exceptions_are_lost_still_pauses(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = made.begun(site / "made", 2, "batches: {size: 1}\n", {"seconds": 0.2})
    step, steps = engine.Engine._step, iter([True])

    def in_a_finalizer(self: engine.Engine) -> str:
        if next(steps, False):
            with suppress(KeyboardInterrupt):
                os.kill(os.getpid(), 2)
        return step(self)

    monkeypatch.setattr(engine.Engine, "_step", in_a_finalizer)
    with pytest.raises(KeyboardInterrupt):
        made.carry_out(site / "made")
    kept = store.Store(site / "made" / "state").events(begun.id)
    assert any(isinstance(one, events.Paused) and one.why == "Ctrl-C" for one in kept)


def test_a_secret_that_the_processes_cannot_read_again_is_refused(
    site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (site / "more.yaml").write_text("ansible_become_password: hunter2-of-all\n")
    assert start(monkeypatch, "-e", "@more.yaml") == 2
    said = capsys.readouterr().err
    assert "ansible_become_password of train1.dc1.example.com" in said
    assert "hunter2" not in said
    assert gpuprov(monkeypatch, "status", "--all") == 0
    assert capsys.readouterr().out == "no roll-outs\n"


def test_without_the_schedulers_program_nothing_begins(
    site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (site / "rollout.yaml").write_text("gpuprov_rollout: 1\ndrain: {adapter: slurm}\n")
    monkeypatch.setenv("PATH", str(site))
    assert start(monkeypatch) == 2
    assert "scontrol is not installed here" in capsys.readouterr().err
    assert not store.Store().all()


@pytest.mark.install
@pytest.mark.parametrize(("why", "code"), [("storage is slow", 2), ("Ctrl-C", 0)])
def test_the_same_start_does_not_end_the_pause_of_a_colleague(
    site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], why: str, code: int
) -> None:
    def killed(_self: object) -> None:
        raise SystemExit(9)

    with monkeypatch.context() as patched:
        patched.setattr("gpuprov.rollout.engine.Engine._step", killed)
        assert start(patched) == 9
    kept = store.Store()
    seen = len(kept.events("friday"))
    assert kept.record("friday", seen, [events.Paused(at=9.0, by="bob", why=why)])
    assert start(monkeypatch) == code
    told = capsys.readouterr().err
    assert ("the roll-out friday is paused by bob: storage is slow" in told) == (code == 2)


def test_a_worker_that_ends_with_an_error_is_told_by_it_and_not_by_its_fix(tmp_path: Path) -> None:
    job = Job(number=1, act="apply", hosts=("a",), left={"a"})
    worker = Worker(tmp_path, "friday", job, lambda _job: [sys.executable])
    worker._err.parent.mkdir(parents=True, exist_ok=True)
    worker._err.write_text("reading\n\x1b[31mthe secrets are not here\nfix: --secrets INVENTORY reads them\n")
    assert worker.last_words() == "\x1b[31mthe secrets are not here", "made safe where it is shown"


def test_a_process_that_has_temporals_sdk_goes_on_after_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended at once, with status 0: pytest, too, as if all tests had passed."""
    monkeypatch.setitem(sys.modules, "gpuprov.rollout.temporal.connect", sys)
    assert run_main(monkeypatch, "--version") == 0
