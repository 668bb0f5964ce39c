"""Runs cases in child processes: what ends one of them by a signal, or does not end, is a finding and not the end of
the run."""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import resource
import signal
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.fuzz.targets import Target, targets
from tests.fuzz.whole import warm

SLOW = 5.0
"""Seconds of a processor that one case may take; those of the clock are the machine's."""
DEAD = 60.0
"""Seconds of the clock after which a child is killed that waits, or takes no signal."""
CHUNK = 4_000
MEMORY = 3 << 30
"""Bytes of address space of a child: what wants more is a crash."""


class Hang(BaseException):
    """A case that does not end."""


@dataclass
class Report:
    """How many cases were run, and `target:number` with what happened for each that is not allowed."""

    cases: int = 0
    seconds: float = 0.0
    crashes: dict[str, str] = field(default_factory=dict)
    hangs: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.cases} cases, {len(self.crashes)} crashes, {len(self.hangs)} hangs; {self.seconds:.0f} s"


def generator(target: Target, number: int) -> Random:
    """The one source of chance of a case: nothing else decides what it is."""
    return Random(f"{target.name}:{number}")


def one(target: Target, number: int) -> None:
    """Make a case and judge it. Raises what is not allowed, Hang among it."""

    def late(*_: Any) -> None:
        raise Hang

    case = target.make(generator(target, number))
    signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, SLOW)
    try:
        target.judge(case)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def chunks(cases: int, only: str = "") -> Iterator[tuple[Target, int, int]]:
    """What is to be run: every target by its share, in parts; the slow ones first."""
    chosen = [target for target in targets() if only in target.name]
    total = sum(target.share for target in chosen)
    for target in sorted(chosen, key=lambda one: not one.name.startswith("whole.")):
        mine = max(1, round(cases * target.share / total / 1.0))
        size = CHUNK // 8 if target.name.startswith("whole.") else CHUNK
        for start in range(0, mine, size):
            yield target, start, min(mine, start + size)


def _child(target: Target, start: int, end: int, place: Any, found: Any) -> None:
    faulthandler.disable()  # pytest's would tell of what is told here
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.chdir(tempfile.mkdtemp(prefix="gpuprov-fuzz-"))
    with open(os.devnull, "w") as null:
        os.dup2(null.fileno(), 1)
        os.dup2(null.fileno(), 2)
    for number in range(start, end):
        place.value = number
        try:
            one(target, number)
        except Hang:
            found.send((number, "hang", "".join(traceback.format_stack()[-3:])))
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            text = (
                f"{type(error).__name__}: {str(error)[:200]!a} at "
                f"{last.filename.rpartition('gpuprov/')[2]}:{last.lineno}"
            )
            found.send((number, "crash", text))
    place.value = end
    found.send(None)


class _Running:
    def __init__(self, target: Target, start: int, end: int) -> None:
        self.target, self.start, self.end = target, start, end
        self.place = multiprocessing.Value("q", start, lock=False)
        self.pipe, theirs = multiprocessing.Pipe(duplex=False)
        self.process = multiprocessing.get_context("fork").Process(
            target=_child, args=(target, start, end, self.place, theirs), daemon=True
        )
        self.process.start()
        theirs.close()
        self.seen, self.since = -1, time.monotonic()

    def stuck(self) -> bool:
        if self.place.value != self.seen:
            self.seen, self.since = self.place.value, time.monotonic()
        return time.monotonic() - self.since > DEAD


def run(cases: int, *, workers: int = 2, only: str = "") -> Report:
    """All targets. Deterministic but for hangs, which depend on the machine."""
    started = time.monotonic()
    report, waiting, running = Report(), list(chunks(cases, only))[::-1], list[_Running]()
    report.cases = sum(end - start for _, start, end in waiting)
    with tempfile.TemporaryDirectory(prefix="gpuprov-fuzz-") as folder, _environment(folder):
        if any(target.name.startswith("whole.") for target, _, _ in waiting):
            warm()
        while waiting or running:
            while waiting and len(running) < workers:
                running.append(_Running(*waiting.pop()))
            multiprocessing.connection.wait([one.pipe for one in running], timeout=1)
            for child in list(running):
                if _finished(child, report):
                    running.remove(child)
                    if child.place.value < child.end:
                        waiting.append((child.target, child.place.value + 1, child.end))
    report.seconds = time.monotonic() - started
    return report


def _finished(child: _Running, report: Report) -> bool:
    with contextlib.suppress(EOFError):
        while child.pipe.poll():
            said = child.pipe.recv()
            if said is None:
                child.process.join()
                return True
            number, kind, text = said
            (report.hangs if kind == "hang" else report.crashes)[f"{child.target.name}:{number}"] = text
    place = f"{child.target.name}:{child.place.value}"
    if child.stuck():
        report.hangs[place] = "it waits, or takes no signal"
        child.process.kill()
        child.process.join()
        return True
    if not child.process.is_alive():
        report.crashes[place] = f"ended by {child.process.exitcode}"
        return True
    return False


@contextlib.contextmanager
def _environment(folder: str) -> Iterator[None]:
    """A home of its own, and everything loaded before the children are made."""
    given = {"HOME": folder, "XDG_CACHE_HOME": folder, "ANSIBLE_HOME": folder, "TMPDIR": folder}
    old = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    before = tempfile.tempdir
    tempfile.tempdir = folder
    try:
        yield
    finally:
        tempfile.tempdir = before
        for name, value in old.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def kinds(found: dict[str, str], most: int = 3) -> dict[str, Sequence[str]]:
    """Findings by what happened, each with a few cases."""
    told: dict[str, list[str]] = {}
    for place, text in found.items():
        told.setdefault(text, []).append(place)
    return {text: places[:most] for text, places in told.items()}
