"""Messages while a user waits: one block on a terminal, whole lines without control codes elsewhere."""

from __future__ import annotations

import io
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gpuprov.apply.aftermath import describe_interruption
from gpuprov.cli.sections import describe_interrupt
from gpuprov.core import durations, terminal
from gpuprov.core.errors import GpuprovError
from gpuprov.core.sanitize import hides
from gpuprov.core.terminal import Progress
from gpuprov.plan.events import Ledger
from gpuprov.plan.interrupt import interruptible
from tests.rows import run_each
from tests.test_cli import ROOT

pytestmark = pytest.mark.install

NAMES = [f"train{number:03}.dc1.example.com" for number in range(12)]


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_is_said_on_a_narrow_terminal_breaks_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    screen, pipe = Screen(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    long = "saved: gpuprov apply friday.plan does this, and refuses if anything has changed by then"
    terminal.progress(long)
    terminal.warning(long)
    terminal.error(GpuprovError(long, long))
    said = re.sub("\x1b\\[[0-9]*m", "", screen.getvalue())
    assert max(map(len, said.splitlines())) <= 40
    assert " ".join(said.split()) == f"{long} warning: {long} error: {long} fix: {long}"
    monkeypatch.setattr(sys, "stderr", pipe)
    terminal.progress(long)
    assert pipe.getvalue() == f"{long}\n", "what is searched is left whole"


@run_each("columns", [40, 80, 120])
def test_the_block_fits_a_terminal_and_tells_the_time(columns: int) -> None:
    progress = terminal.Progress(NAMES, "applying", earlier="6 min the last time (4 hosts)")
    start = progress._start
    progress.act("Install - packages")
    progress.update(NAMES[3], "nvidia_driver: Install the set")
    progress._waiting[NAMES[3]] = ("nvidia_driver: Install the set", start + 60)
    progress.done(NAMES[0])
    lines = progress.lines(columns, 8, start + 3725.5)
    assert lines[0].startswith("1:02:05, 1 of 12 hosts done: ")
    assert max(map(len, lines)) <= columns
    assert len(lines) <= 7
    assert lines[-1] == "  and 8 more"
    row = next(line for line in lines if "train003"[:7] in line and "1:01:05" in line)
    assert "nvidia" in row
    assert " ".join(lines[: lines.index(next(line for line in lines if line.startswith("  ")))]).endswith(
        "done: install, 6 min the last time (4 hosts)"
    ), "also where it takes two lines"
    if columns == 120:
        assert lines[0].endswith("done: install, 6 min the last time (4 hosts)")


@pytest.mark.parametrize("columns", [40, 60, 80])
@pytest.mark.parametrize(
    "name", ["a-very-long-host-name-of-a-gpu-{:02}.dc1.example.com", "gpu{:02}.a-long-domain.of.example.com"]
)
def test_names_that_are_cut_are_told_apart(name: str, columns: int) -> None:
    progress = terminal.Progress([name.format(number) for number in range(1, 4)], "verifying")
    rows = [line for line in progress.lines(columns, 24, progress._start + 5) if line.startswith("  ")]
    assert len(set(rows)) == 3, rows
    assert all(f"{number:02}" in row and "0:05 verifying" in row for number, row in enumerate(rows, 1))
    assert max(map(len, rows)) <= columns


def test_the_block_leaves_room_for_what_ctrl_c_echoes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.get_terminal_size", lambda *_: os.terminal_size((80, 24)))
    block = terminal.Progress(NAMES, "applying")
    for name in NAMES:
        block.note(name, "kernel: Rebuild outdated initramfs images and boot entries")
    assert max(len(line) for line in str(block._picture()).splitlines()) == 77


def test_one_host_is_not_counted() -> None:
    progress = terminal.Progress(["gpu1"], "verifying", earlier="40 s the last time (1 host)")
    assert progress.lines(80, 24, progress._start + 5)[0] == "0:05, verifying, 40 s the last time (1 host)"


VERIFIES = """
import sys, time
from pathlib import Path
from gpuprov.cli import cli
from gpuprov.core import terminal as console
from gpuprov.core.errors import GpuprovError
from gpuprov.core import durations
durations.LEAST = 0.0
Path("i.yaml").write_text("all: {hosts: {a: {ansible_connection: local}}, vars: {gpuprov: {kernel: {}}}}\\n")
real, said = console.Progress, []
def progress(*given, **more):
    said.append(more["earlier"])
    return real(*given, **more)
console.Progress = progress
for _ in range(2):
    try:
        cli(["verify", "--no-cache", "i.yaml"], standalone_mode=False)
    except SystemExit:
        pass
print(said)
"""


def test_verify_says_how_long_it_took_the_last_time(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", VERIFIES],
        capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert re.search(r"\['', '[0-9]+ s the last time \(1 host\)'\]", done.stdout), done.stdout + done.stderr


def test_texts_of_hosts_bring_no_control_codes() -> None:
    progress = terminal.Progress(["gpu\x1b[2J"], "applying")
    progress.update("gpu\x1b[2J", "\x1b]0;title\x07\nsecond line")
    assert not any(hides(line) or "\n" in line for line in progress.lines(80, 24, 0))


WAITS = """
import time
from gpuprov.core import terminal as console
console.Progress.PULSE = 0.2
with console.Progress(["gpu1", "gpu2"], "applying", quiet=True, earlier="6 min the last time (4 hosts)") as progress:
    progress.note("gpu1", "waits for its lock (Take the lock)")
    progress.done("gpu2")
    time.sleep(0.9)
"""


def test_a_pipe_hears_now_and_then_what_is_waited_for() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WAITS], capture_output=True, text=True, cwd=ROOT, timeout=60, check=True
    )
    lines = done.stderr.splitlines()
    assert 2 <= len(lines) <= 5
    assert lines[0] == (
        "0:00, 1 of 2 hosts done: applying, 6 min the last time (4 hosts); gpu1: waits for its lock (Take the "
        "lock), for 0:00"
    )
    assert "\x1b" not in done.stderr


def test_a_terminal_has_one_block_that_is_gone_at_the_end() -> None:
    code = WAITS.replace("time.sleep(0.9)", "time.sleep(1.5)")
    leader, follower = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "60"}
    with subprocess.Popen(
        [sys.executable, "-c", code], stderr=follower, stdout=follower, cwd=ROOT, env=environment
    ) as child:
        os.close(follower)
        told, limit = b"", time.monotonic() + 60
        while time.monotonic() < limit:
            try:
                told += os.read(leader, 65536)
            except OSError:
                break
        assert child.wait(10) == 0
    os.close(leader)
    text = told.decode()
    assert "1 of 2 hosts done: applying" in text
    assert "waits for its lock" in text
    assert "\x1b[2K" in text, "the block is drawn over, and taken away at the end"


def test_how_long_it_took_is_told_the_next_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert durations.earlier("apply", {"mig", "kernel"}) == ""
    durations.note("apply", {"kernel", "mig"}, 372.4, 4)
    assert durations.earlier("apply", {"mig", "kernel"}) == "6 min the last time (4 hosts)"
    assert durations.earlier("apply", {"mig"}) == "", "other roles take another time"
    durations.note("apply", {"mig"}, 0.4, 1)
    assert durations.earlier("apply", {"mig"}) == "", "nobody waits for that"
    durations.note("apply", {"mig"}, 60, 1)
    for path in tmp_path.rglob("*"):
        if path.is_file():
            path.write_bytes(b"damaged")
    assert durations.earlier("apply", {"mig"}) == ""


@run_each(("seconds", "expected"), [(45, "45 s"), (372, "6 min"), (5400, "90 min"), (7800, "2 h 10 min")])
def test_lengths_of_time(seconds: float, expected: str) -> None:
    assert durations.length(seconds) == expected


@run_each(
    ("task", "module", "expected"),
    [
        ("host : Take the lock", "gpuprov_lock", "its lock"),
        ("host : Release the lock of this host", "gpuprov_lock", ""),
        ("host : Reboot the host", "ansible.builtin.reboot", "its reboot"),
        ("nvidia_driver : Install", "gpuprov_packages", "its package manager, or another program that holds its lock"),
        ("host : Drain the host", "gpuprov_step", "the drain"),
        ("kernel : Write", "gpuprov_files", ""),
    ],
)
def test_what_a_task_waits_for(task: str, module: str, expected: str) -> None:
    ledger = Ledger()
    data: Any = {"host": "a", "role": task.partition(" : ")[0], "task": task, "task_action": module}
    data["task_path"] = f"/project/roles/host/tasks/{'drain_users' if module == 'gpuprov_step' else 'main'}.yml:3"
    step = ledger.feed({"event": "runner_on_start", "event_data": data})
    assert step
    assert step.waits == expected
    assert list(ledger.running().values()) == [["a"]]
    ledger.feed({"event": "playbook_on_stats", "event_data": {"processed": {"a": 1}}})
    assert ledger.running() == {}


def test_a_result_names_its_step() -> None:
    """ansible-runner's events have no arguments of tasks, unless Ansible displays them."""
    ledger = Ledger()
    result = {"changed": True, "step": "settings", "restored": ["vm.swappiness"]}
    data: Any = {"host": "a", "role": "host", "task": "Put settings back", "task_action": "gpuprov_step", "res": result}
    ledger.feed({"event": "runner_on_ok", "event_data": data})
    assert [(one.kind, one.name, one.after) for one in ledger.hosts["a"].made] == [
        ("setting", "vm.swappiness", "put back")
    ]


def test_an_interrupt_is_answered_at_once(tmp_path: Path) -> None:
    """Ansible may take its time to end; the user hears before that what becomes of it."""
    said: list[float] = []
    deaf = [
        sys.executable,
        "-c",
        "import signal, time; signal.signal(2, lambda *_: None); print(flush=True); time.sleep(60)",
    ]
    with subprocess.Popen(deaf, stdout=subprocess.PIPE) as child:
        assert child.stdout
        child.stdout.readline()
        (tmp_path / "pid").write_text(str(child.pid))
        start = time.monotonic()
        with interruptible(tmp_path / "pid", 2.0, lambda: said.append(time.monotonic())):
            os.kill(os.getpid(), signal.SIGINT)
            child.wait(30)
    assert said
    assert said[0] - start < 1 < time.monotonic() - start


def test_an_interrupted_reading_says_what_was_done_and_that_nothing_was_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Progress, "cut_off", "")
    with Progress(["a", "b", "c"], "reading", quiet=True) as progress:
        progress.done("b")
        progress.__exit__(KeyboardInterrupt, None, None)
    assert describe_interrupt("verify", Progress.cut_off).splitlines() == [
        "interrupted: 0:00, 1 of 3 hosts done: reading",
        "no host was changed",
        "what was started on hosts only reads, and ends by itself within its time limit",
        "run the same command again: it begins anew",
    ]
    assert describe_interrupt("apply", Progress.cut_off) == "interrupted: 0:00, 1 of 3 hosts done: reading"
    assert describe_interrupt("verify", "") == "interrupted"


def test_what_runs_on_the_hosts_is_named_and_how_it_ends() -> None:
    ledger = Ledger()
    for number in range(1, 8):
        task = "nvidia_driver : Install" if number < 5 else f"kernel : Step {number}"
        data: Any = {"host": f"gpu{number}", "role": task.partition(" ")[0], "task": task, "task_action": "x"}
        ledger.feed({"event": "runner_on_start", "event_data": data})
    assert describe_interruption(ledger).splitlines() == [
        "interrupted: Ansible is being ended; running now:",
        "  gpu[1:4]: nvidia_driver: Install",
        "  gpu5: kernel: Step 5",
        "  gpu6: kernel: Step 6",
        "  gpu7: kernel: Step 7",
        "What has begun on a host ends by itself, and its lock goes then, in 10 minutes at the latest. Ctrl-C again "
        "does not wait",
    ]
