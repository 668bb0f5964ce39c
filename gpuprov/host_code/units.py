"""Units of this host: whether a daemon runs with its current files, and commands that report why they failed."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from typing import Iterator, Sequence

from . import reads
from .process import read_stat
from .systemd import is_active, show, systemctl

# Maximum number of seconds for a program that queries a daemon.
LIMIT = 20


def judge_daemon(unit: str, process: str, files: Sequence[str]) -> str:
    """Return `dead`, `alive`, or `old`: alive, and one of the files (its program, its settings) has got another
    content since its start.

    process: the program's name, among all processes of the unit; empty for its main process.
    """
    starts = {pid: start for pid in list_processes(unit, process) for start in find_start(pid)}
    if not starts or not is_active(unit):
        return "dead"
    running = [reads.find_program(pid) for pid in starts]
    return "old" if reads.list_newer(files, min(starts.values()), running) else "alive"


def list_processes(unit: str, process: str) -> Iterator[int]:
    if not process:
        main = show(unit, "MainPID")
        if main.isdigit() and main != "0":
            yield int(main)
        return
    group = show(unit, "ControlGroup")
    named = re.compile(rf"(^|[ /]){re.escape(process)}( |\Z)")
    for pid in filter(str.isdigit, os.listdir("/proc") if group else ()):
        with contextlib.suppress(OSError):
            is_member = any(line.split(":", 2)[2:] == [group] for line in _read(f"/proc/{pid}/cgroup").splitlines())
            if is_member and named.search(_read(f"/proc/{pid}/cmdline").replace("\0", " ")):
                yield int(pid)


def find_start(pid: int) -> Iterator[float]:
    """Yield the start time of a process, in seconds of the clock; nothing for a process that has ended, though it may
    still be listed."""
    fields = read_stat(pid)
    if fields and fields[0] not in "ZX":
        uptime = float(_read("/proc/uptime").split()[0])
        yield time.time() - uptime + int(fields[19]) / os.sysconf("SC_CLK_TCK") + reads.LATE


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def restart(unit: str, verb: str = "restart") -> tuple[int, list[str]]:
    """Restart the unit, with its current files: systemd 252 reports NeedDaemonReload=no for a first drop-in, whose
    folder is new. Or do the action that `verb` names.

    Return systemctl's exit status and, for a failure, the journal of this start.
    """
    systemctl("daemon-reload")
    began = int(time.time())
    status, _, errors = systemctl(verb, "--", unit)
    if status == 0:
        return 0, []
    read_journal("--sync")
    lines = read_journal("-q", "--no-pager", "-o", "cat", "--since", f"@{began}", "-u", unit).splitlines()
    return status, [line for line in lines if line.strip()] or errors.splitlines()


def wait_for_answer(argv: Sequence[str], pattern: str, tries: int = 15, pause: float = 2) -> str:
    """Query a program until its output matches the pattern: return its last output if it never does, and "" if it
    does."""
    output = ""
    for number in range(tries):
        time.sleep(pause if number else 0)
        try:
            done = subprocess.run(list(argv), stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=LIMIT)
        except (OSError, subprocess.TimeoutExpired) as error:
            output = str(error)
            continue
        if re.search(pattern, done.stdout.decode(errors="replace")):
            return ""
        output = (done.stdout + b" " + done.stderr).decode(errors="replace").strip()
    return output or "it said nothing"


def read_journal(*words: str) -> str:
    with contextlib.suppress(FileNotFoundError):
        done = subprocess.run(["journalctl", *words], stdin=subprocess.DEVNULL, capture_output=True, check=False)
        return done.stdout.decode(errors="replace")
    return ""


def find_last_words(lines: Sequence[str], program: str) -> str:
    """Return the last lines that a unit's program logged under its own name; else the last lines of all."""
    own_lines = [line for line in lines if program and line.startswith(f"{program}: ")]
    return own_lines[-1] if own_lines else "; ".join(lines[-3:]) or "it said nothing"
