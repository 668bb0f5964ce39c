"""Real Ansible runs of a tiny project on this machine."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpuprov import apply as applying
from gpuprov import plan as planning
from gpuprov.core.errors import GpuprovError
from gpuprov.plan.events import Step
from gpuprov.plan.workspace import PREFIX, remove_leftovers
from tests.apply import fleet

pytestmark = pytest.mark.install


@pytest.fixture(autouse=True)
def _own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", None)


class Noting(applying.Show):
    """Notes every step."""

    def __init__(self, steps: list[str]) -> None:
        self._steps = steps

    @contextmanager
    def applying(self, hosts: Sequence[str], doing: str, earlier: str = "") -> Iterator[Callable[[Step], None]]:
        yield lambda step: self._steps.append(f"{step.host}: {step.text}")


def options(folder: Path, **more: object) -> applying.Options:
    return applying.Options.of({"yes": True, "log_dir": folder / "log", **more})


def test_each_host_gets_its_own_verdict(tmp_path: Path) -> None:
    steps: list[str] = []
    with fleet.project(tmp_path) as state:
        (state / "same1").write_text("as wanted\n")
        pairs = [fleet.pair(name) for name in ("new1", "same1", "bad1", "wrong1")]
        run = applying.apply(pairs, options(tmp_path), Noting(steps))
    outcomes = {outcome.host: outcome for outcome in run.hosts}
    assert {name: outcome.state for name, outcome in outcomes.items()} == {
        "new1": "changed",
        "same1": "unchanged",
        "bad1": "failed",
        "wrong1": "changed",
    }
    assert {name: [(one.name, one.state, one.why) for one in outcome.items] for name, outcome in outcomes.items()} == {
        "new1": [("/state", "done", "")],
        "same1": [],
        "bad1": [("/state", "done", "")],
        "wrong1": [("/state", "not done", "kernel.state fails")],
    }
    assert outcomes["bad1"].task == "kernel: Refuse"
    assert outcomes["bad1"].message == "this host is bad. Fix: none"
    assert [result.check for result in outcomes["wrong1"].failing] == ["kernel.state"]
    assert not outcomes["new1"].failing
    assert run.exit_code == 3
    assert "new1: kernel: Write the state" in steps
    assert run.log is not None
    text = run.log.read_text()
    assert run.log.stat().st_mode & 0o777 == 0o600
    assert "Write the state" in text
    assert "PLAY RECAP" in text
    assert fleet.SECRET not in text
    assert not list((tmp_path / "tmp").iterdir())


@pytest.mark.parametrize(
    ("canary", "why"),
    [
        ("wrong1", "the canary wrong1 is not green; 2 not started"),
        ("waits1", "the canary waits1 waits for a reboot that is not permitted (--reboot permits it); 2 not started"),
    ],
)
def test_a_canary_that_proves_nothing_stops_the_batches(tmp_path: Path, canary: str, why: str) -> None:
    """However many hosts may fail: that is of the batches."""
    with fleet.project(tmp_path) as state:
        pairs = [fleet.pair(name) for name in ("new1", "new2", canary)]
        run = applying.apply(pairs, options(tmp_path, canary=canary, serial="1", max_fail="2"))
        written = {path.name for path in state.iterdir()}
    assert written == {canary}
    assert [outcome.state for outcome in run.hosts] == ["not-started", "not-started", "changed"]
    waits = "kernel.state fails" if canary == "wrong1" else "waits for a reboot: the old one runs"
    assert [one.why for outcome in run.hosts for one in outcome.items] == ["not started", "not started", waits]
    assert run.stopped == why
    assert run.exit_code == 3


def test_a_batch_bears_as_many_failures_as_may_be(tmp_path: Path) -> None:
    with fleet.project(tmp_path) as state:
        pairs = [fleet.pair(name) for name in ("wrong1", "wrong2", "new1")]
        borne = applying.apply(pairs, options(tmp_path, serial="1", max_fail="2"))
        assert (borne.stopped, (state / "new1").exists()) == ("", True)
        again = applying.apply([*pairs, fleet.pair("new2")], options(tmp_path, serial="1", max_fail="1"))
        assert not (state / "new2").exists()
    assert again.stopped == "2 failed in all, --max-fail is 1: wrong1, wrong2; 2 not started"


def test_a_project_that_ansible_cannot_read_is_one_clear_failure(tmp_path: Path) -> None:
    with fleet.project(tmp_path, site="this is not a playbook") as state:
        (state / "same1").write_text("as wanted\n")
        run = applying.apply([fleet.pair("same1")], options(tmp_path))
    assert run.hosts[0].state == "failed"
    assert "playbook" in run.hosts[0].message.lower()


def test_plan_changes_nothing_and_starts_no_ansible(tmp_path: Path) -> None:
    with fleet.project(tmp_path, site="this is not a playbook") as state:
        plans = planning.plan([fleet.pair("new1"), fleet.pair("bad1")])
        assert not list(state.iterdir())
    assert [bool(one.run) for one in plans] == [True, True]
    assert not list((tmp_path / "tmp").iterdir())


def test_impossible_options_are_told_before_any_host_is_read(tmp_path: Path) -> None:
    with pytest.raises(GpuprovError, match='--canary: no host is called "gpu9"'):
        applying.apply([fleet.pair("new1")], options(tmp_path, canary="gpu9"))


def test_a_refusal_changes_nothing(tmp_path: Path) -> None:
    with fleet.project(tmp_path) as state:
        with pytest.raises(GpuprovError, match="not confirmed"):
            applying.apply(
                [fleet.pair("new1")], options(tmp_path, yes=False), confirm=lambda plans: bool(plans[0].idle)
            )
        assert not list(state.iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_an_interrupt_leaves_nothing_running(tmp_path: Path, number: int) -> None:
    root = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": str(root), "GPUPROV_TEST": str(tmp_path)}
    command = [sys.executable, "-m", "tests.apply.fleet", str(tmp_path), "slow1", "new1"]
    with subprocess.Popen(command, cwd=root, env=environment, stdout=subprocess.PIPE, text=True) as child:
        wait_for(lambda: any("41.5" in line for line in processes(tmp_path)))
        child.send_signal(number)
        told = child.communicate(timeout=90)[0]
    wait_for(lambda: not processes(tmp_path))
    left = list((tmp_path / "tmp").iterdir())
    assert (tmp_path / "run" / "lock").exists() == (number == signal.SIGKILL), "the host's lock"
    if number == signal.SIGKILL:
        assert any(path.name.startswith(PREFIX) for path in left)
        remove_leftovers(tmp_path / "tmp")
        assert not list((tmp_path / "tmp").glob(f"{PREFIX}*"))
        return
    assert child.returncode == 130
    assert "slow1" in told
    # Which task is named depends on how far Ansible's events have come when the signal arrives.
    assert re.search("failed: interrupted in kernel: (Write the state|Take long)", told)
    assert "interrupted: run it again to complete it" in told
    # A module that ends by the signal while it unpacks itself leaves the folder that Ansible made for it: code, and no
    # arguments.
    assert not [path for path in left if not re.fullmatch(r"ansible_\S+_payload_\w+", path.name)]


def processes(mark: Path) -> list[str]:
    """Command lines of processes that the run started: they carry its mark in their environment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"GPUPROV_TEST={mark}".encode() in (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return [line for line in found if line]


def wait_for(condition: object, limit: float = 60.0) -> None:
    deadline = time.monotonic() + limit
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.05)
