"""gpuprov's command line, in the process of the tests, or in a copy of it."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import pytest

from gpuprov.__main__ import main, run

LIMIT = 120
"""Seconds that a command may take."""
FOREIGN = ("GPUPROV", "ANSIBLE")
"""Variables of who runs the tests that would change what commands do."""


def run_main(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """Run `gpuprov WORDS`; return its exit code."""
    with monkeypatch.context() as patched:
        patched.setattr(sys, "argv", ["gpuprov", *words])
        patched.setattr(sys, "excepthook", sys.excepthook)
        with pytest.raises(SystemExit) as ended:
            main()
    return int(ended.value.code or 0)


def spawn(
    *words: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `gpuprov WORDS` as a user's shell does, in a process that begins with these variables."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    return subprocess.run(
        [sys.executable, "-m", "gpuprov", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env={**kept, **(env or {})},
        timeout=LIMIT,
    )


def run_forked(
    *words: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None, given: bytes | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `gpuprov WORDS` in a process of its own, which has imported it already; return what it printed and its code.

    `env`: in place of this process's variables that are gpuprov's or Ansible's. `given`: standard input.
    """
    importlib.import_module("gpuprov.capabilities")
    importlib.import_module("gpuprov.fleet.specs")
    with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as error:
        source.write(given or b"")
        source.seek(0)
        child = multiprocessing.get_context("fork").Process(
            target=_become, args=(list(map(str, words)), cwd, env or {}, (source, out, error))
        )
        child.start()
        child.join(LIMIT)
        if child.is_alive():
            child.kill()
            child.join()
            raise subprocess.TimeoutExpired(["gpuprov", *map(str, words)], LIMIT)
        printed = []
        for file in (out, error):
            file.seek(0)
            printed.append(file.read().decode())
    return subprocess.CompletedProcess(["gpuprov", *map(str, words)], child.exitcode or 0, *printed)


def _become(words: list[str], cwd: Path | None, env: Mapping[str, str], files: tuple[IO[bytes], ...]) -> None:
    """Turn this process, a copy of the tests', into one that runs gpuprov."""
    for number, file in enumerate(files):
        os.dup2(file.fileno(), number)
    sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in [name for name in os.environ if name.startswith(FOREIGN)]:
        del os.environ[name]
    os.environ.update(env)
    if cwd:
        os.chdir(cwd)
    sys.argv, sys.excepthook = ["gpuprov", *words], sys.__excepthook__
    run()
