"""nohup and a shell's background keep their word: what was ignored from the start does not end the work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from gpuprov.core.signals import ENDING, ended_politely, handled
from gpuprov.plan.interrupt import interruptible
from tests.rows import run_each


@pytest.fixture(params=ENDING)
def number(request: pytest.FixtureRequest) -> Iterator[int]:
    before = signal.getsignal(request.param)
    yield request.param
    signal.signal(request.param, before)


def handler(_signal: int, _frame: FrameType | None) -> None: ...


def test_a_signal_that_was_ignored_stays_so(number: int, tmp_path: Path) -> None:
    signal.signal(number, signal.SIG_IGN)
    (tmp_path / "pid").write_text("0")
    with handled(ENDING, handler), ended_politely(), interruptible(tmp_path / "pid", 0.0) as interrupt:
        os.kill(os.getpid(), number)
        assert signal.getsignal(number) == signal.SIG_IGN
    assert not interrupt.requested
    assert signal.getsignal(number) == signal.SIG_IGN


def test_any_other_is_handled_and_its_handler_comes_back(number: int) -> None:
    signal.signal(number, signal.SIG_DFL)
    with handled(ENDING, handler):
        assert signal.getsignal(number) == handler
    assert signal.getsignal(number) == signal.SIG_DFL


def test_who_handles_them_already_goes_on_doing_so() -> None:
    """A rehearsal counts its signals, also while it reads hosts; a worker of Temporal's leaves its jobs alone."""
    with handled(ENDING, handler), ended_politely():
        assert {signal.getsignal(one) for one in ENDING} == {handler}


@run_each("word", ["nohup", "env"])
def test_a_terminal_that_closes(word: str) -> None:
    told = "import os, signal\nfrom gpuprov.core.signals import ended_politely\n"
    told += "with ended_politely():\n os.kill(os.getpid(), signal.SIGHUP)\n print('to its end')\n"
    done = subprocess.run([word, sys.executable, "-c", told], capture_output=True, text=True, check=False)
    assert ("to its end" in done.stdout, "KeyboardInterrupt" in done.stderr) == (word == "nohup", word == "env")
