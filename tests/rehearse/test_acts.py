"""The acts in order, their verdicts and exit codes; and that nothing stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gpuprov.rehearse import Options, Rehearsed, build_document, format_text
from gpuprov.rehearse import acts as rehearsing
from gpuprov.rehearse.acts import rehearse
from gpuprov.rehearse.model import ACTS
from gpuprov.rehearse.seen import REBOOTED
from gpuprov.verify.evaluate import ResultStatus
from tests import documents
from tests.rehearse import stage
from tests.rehearse.stage import Noting, pair, scripted
from tests.rows import run_each

pytestmark = pytest.mark.install

ROOT = Path(__file__).parents[2]
WAIT = {"found": "wrong", "reboot": "the command line"}


def rehearsed(*names: str, results: Any = (), backend: Noting | None = None, **options: Any) -> Rehearsed:
    with scripted(results):
        pairs = [pair(name) for name in names]
        return rehearse(pairs, Options(all_hosts=True, **options), backend or Noting())


def verdicts(whole: Rehearsed) -> dict[str, str]:
    return {step.name: step.verdict for step in whole.rehearsals[0].steps}


def test_a_green_rehearsal_does_all_acts_and_leaves_nothing() -> None:
    backend = Noting()
    whole = rehearsed("gpu01", backend=backend)
    (one,) = whole.rehearsals
    assert verdicts(whole) == dict.fromkeys(ACTS, "ok")
    assert whole.exit_code == 0
    assert [call for call, _ in backend.calls] == ["up", "run", "run", "reboot", "down"]
    assert not backend.present
    assert one.seen is not None
    assert one.seen.packages == ("a: 0 -> 1",)
    assert one.seen.files == ("/etc/new file: changed",)
    text = format_text(whole)
    assert "gpu01: green" in text
    assert "host.gpu: the host was described without GPUs" in text
    assert text.endswith("no real host was contacted")
    plain = documents.read_document(build_document(whole))
    assert (plain["exit_code"], plain["summary"]["sentence"]) == (0, "1 simulated host for 1 real host: 1 green")
    assert plain["rehearsals"][0]["hosts"] == ["gpu01"]
    assert {row["how"] for row in plain["reality"]} >= {"real", "simulated"}


CASES: list[tuple[str, list[tuple[str, ResultStatus, dict[str, Any]]], str, str, int]] = [
    ("broken", [], "bring up", "unreachable", 4),
    ("failing", [], "apply", "failed", 3),
    ("lost", [], "reboot", "unreachable", 4),
    ("restless", [], "second apply", "differs", 1),
    ("differing", [("kernel.limits", "fail", {"found": "1", "fix": "apply"})], "verify", "differs", 1),
    ("unproved", [("kernel.limits", "skip", {"found": "no reason"})], "verify again", "differs", 1),
    ("vain", [("nouveau.running", "pass", {"found": "not loaded"})], "verify", "differs", 1),
    ("error", [("nouveau.running", "error", {"found": "bug"})], "verify", "differs", 1),
    ("waiting", [("kernel.limits", "fail", WAIT)], "verify", "waiting", 1),
]


@run_each(("name", "results", "act", "verdict", "code"), CASES, ids=[case[0] for case in CASES])
def test_what_goes_wrong_is_told_at_its_act(
    name: str, results: list[tuple[str, ResultStatus, dict[str, Any]]], act: str, verdict: str, code: int
) -> None:
    backend = Noting()
    whole = rehearsed(name, results=results, backend=backend)
    assert verdicts(whole)[act] == verdict
    assert whole.exit_code == code
    assert not backend.present
    assert f"{act:<13}{verdict}" in format_text(whole)
    step = whole.rehearsals[0].step(act)
    assert step
    assert step.told


def test_the_log_of_a_host_that_did_not_come_back_is_told() -> None:
    assert "the last words of re-" in format_text(rehearsed("lost"))


def test_a_host_that_fails_does_not_keep_the_others_from_the_end() -> None:
    whole = rehearsed("broken", "failing", "gpu01")
    assert [one.exit_code for one in whole.rehearsals] == [4, 3, 0]
    assert whole.exit_code == 3
    assert len(whole.rehearsals[0].steps) == 1


def test_a_wrong_second_verify_is_never_excused_by_a_reboot() -> None:
    whole = rehearsed("gpu01", results=[("kernel.limits", "fail", WAIT)])
    assert verdicts(whole)["verify again"] == "differs"
    text = format_text(whole)
    assert "fail kernel.limits" in text


def test_hosts_are_up_a_few_at_a_time() -> None:
    backend = Noting()
    rehearsed("a", "b", "c", backend=backend, forks=2)
    ups = [number for number, (call, _) in enumerate(backend.calls) if call == "up"]
    assert backend.calls.index(("down", backend.calls[ups[0]][1])) < ups[2]


def test_keep_leaves_the_hosts_and_says_how_to_log_in_and_remove_them() -> None:
    backend = Noting()
    whole = rehearsed("gpu01", backend=backend, keep=True)
    (name,) = backend.present
    text = format_text(whole)
    assert "ssh -i /key" in text
    assert f"gpuprov simulate down {name}" in text


@pytest.mark.parametrize("keep", [False, True])
def test_an_error_leaves_nothing(monkeypatch: pytest.MonkeyPatch, keep: bool) -> None:
    backend = Noting()

    def broken(*_given: object, **_more: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(rehearsing, "find_changes", broken)
    with pytest.raises(ZeroDivisionError):
        rehearsed("gpu01", backend=backend, keep=keep)
    assert not backend.present


def test_a_host_that_cannot_be_removed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuprov.rehearse.stage.time.sleep", lambda _seconds: None)
    whole = rehearsed("stuck")
    assert len(whole.leftovers) == 1
    assert f"NOT removed; remove by hand: gpuprov simulate down {whole.leftovers[0]}" in format_text(whole)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("act", ["up", "reboot"])
def test_an_interrupt_removes_what_was_begun(tmp_path: Path, number: int, act: str) -> None:
    """A first signal during the act, and a second one while the hosts are being removed."""
    command = [sys.executable, stage.__file__, str(tmp_path)]
    note = tmp_path / "note"
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    deadline = time.monotonic() + 30
    while not note.exists() or note.read_text().count(f"{act} ") < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    child.send_signal(number)
    time.sleep(0.2)
    child.send_signal(number)
    out, _ = child.communicate(timeout=30)
    lines = note.read_text().split("\n")
    begun = {line.split()[1] for line in lines if line.startswith("up ")}
    assert {line.split()[1] for line in lines if line.startswith("down ")} == begun
    assert child.returncode == 130, out
    assert "interrupted: the simulated hosts were removed" in out
    assert "2 not rehearsed to the end" in out


def test_the_task_that_reboots_is_called_so() -> None:
    assert f"name: {REBOOTED}\n" in (ROOT / "roles/host/tasks/reboot_once.yml").read_text()
