"""Many child processes at a time, one thread, one selector: fed, read, timed and, on an interrupt, ended. This module
knows nothing of hosts, shells or ssh."""

import errno
import os
import selectors
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import IO, Any, Protocol

import msgspec

from gpuprov.core.safe_parse import LARGEST
from gpuprov.core.signals import ended_politely

FULL = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)
GRACE = 1.0  # seconds between SIGTERM and SIGKILL, and between the last expected byte and the end


class Process(Protocol):
    """The needed part of `subprocess.Popen`; a worker thread can implement it."""

    stdin: IO[bytes] | None
    stdout: IO[bytes] | None
    stderr: IO[bytes] | None
    returncode: int | None

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


class Child(subprocess.Popen[bytes]):
    """A child process in a session of its own, so that its helpers (ProxyJump) end with it. `environment`: variables
    beside this process's; None removes one."""

    def __init__(self, argv: list[str], environment: Mapping[str, str | None] | None = None) -> None:
        pipe = subprocess.PIPE
        both = {**os.environ, **(environment or {})}
        env = {name: value for name, value in both.items() if value is not None}
        super().__init__(argv, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, start_new_session=True, env=env)

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.killpg(self.pid, sig)


class Ended(msgspec.Struct):
    """The end of a process."""

    out: bytes
    error: bytes
    status: int | None
    # "" if it ended by itself, else `timeout` or a message.
    reason: str = ""


class Job(msgspec.Struct):
    """A process to run. `start` may raise OSError; `complete` says whether a stream has everything needed."""

    start: Callable[[], Process]
    stdin: bytes
    complete: Callable[[bytearray], bool]
    timeout: float
    done: Callable[[Ended], None]


class _Running:
    def __init__(self, job: Job) -> None:
        self.job = job
        self.process = job.start()
        self.deadline = time.monotonic() + job.timeout
        self.left = memoryview(job.stdin)
        self.received: dict[Any, bytearray] = {self.process.stdout: bytearray(), self.process.stderr: bytearray()}
        self.open = {stream for stream in self.received if stream}
        self.reason = ""

    @property
    def complete(self) -> bool:
        return all(self.job.complete(data) for data in self.received.values())

    def ended(self) -> Ended:
        out, error = (bytes(self.received[s]) for s in (self.process.stdout, self.process.stderr))
        return Ended(out, error, self.process.returncode, self.reason)


def run_all(jobs: Iterable[Job], workers: int) -> None:
    """Run every job, at most `workers` at a time, and report each one's end. A job is taken when a slot is free, so
    that not all scripts of a fleet are in memory at once; if this machine has room for fewer processes, jobs wait for
    others to end. An exception ends all children first, and so do SIGTERM and SIGHUP: children have sessions of their
    own, and would stay."""
    waiting: Iterator[Job] = iter(jobs)
    running: set[_Running] = set()
    with ended_politely(), selectors.DefaultSelector() as selector:
        try:
            while True:
                while len(running) < workers and (job := next(waiting, None)):
                    if not _start(job, running, selector):
                        waiting, workers = chain((job,), waiting), len(running)
                if not running:
                    break
                _run_turn(running, selector)
        finally:
            _end_processes([child.process for child in running])


def _start(job: Job, running: set[_Running], selector: selectors.BaseSelector) -> bool:
    """Start the job; returns False if this machine has no room for it beside the running ones: too few open files,
    processes or memory."""
    try:
        child = _Running(job)
    except OSError as error:
        if running and error.errno in FULL:
            return False
        job.done(Ended(b"", str(error).encode(), None))
        return True
    running.add(child)
    for stream in child.open:
        os.set_blocking(stream.fileno(), False)
        selector.register(stream, selectors.EVENT_READ, child)
    if child.process.stdin:
        os.set_blocking(child.process.stdin.fileno(), False)
        selector.register(child.process.stdin, selectors.EVENT_WRITE, child)
        _write_input(child, selector)
    return True


def _run_turn(running: set[_Running], selector: selectors.BaseSelector) -> None:
    if not running:
        return
    nearest = min(child.deadline for child in running)
    for key, events in selector.select(max(0.0, nearest - time.monotonic())):
        if events & selectors.EVENT_WRITE:
            _write_input(key.data, selector)
        else:
            _read_stream(key.data, key.fileobj, selector)
    now = time.monotonic()
    for child in [child for child in running if not child.open or child.deadline <= now]:
        if child.open and not child.reason and not child.complete:
            child.reason = "timeout"
        _finish_child(child, running, selector)


def _write_input(child: _Running, selector: selectors.BaseSelector) -> None:
    stdin = child.process.stdin
    if stdin is None:
        return
    try:
        while child.left:
            child.left = child.left[os.write(stdin.fileno(), child.left) :]
    except BlockingIOError:
        return
    except OSError:
        pass  # it ended without reading everything; its output says why
    selector.unregister(stdin)
    stdin.close()
    child.process.stdin = None


def _read_stream(child: _Running, stream: Any, selector: selectors.BaseSelector) -> None:
    try:
        data = os.read(stream.fileno(), 1 << 18)
    except BlockingIOError:
        return
    if data:
        received = child.received[stream]
        received += data
        if sum(map(len, child.received.values())) > LARGEST:
            child.reason, child.deadline = f"it printed more than {LARGEST >> 20} MiB", 0.0
            for kept in child.received.values():
                kept.clear()
        elif data.endswith(b"\n") and child.complete:
            child.deadline = min(child.deadline, time.monotonic() + GRACE)
        return
    selector.unregister(stream)
    child.open.discard(stream)


def _finish_child(child: _Running, running: set[_Running], selector: selectors.BaseSelector) -> None:
    for stream in child.open:
        selector.unregister(stream)
    if child.process.stdin:
        selector.unregister(child.process.stdin)
        child.process.stdin.close()
        child.process.stdin = None
    if child.open:
        _end_processes([child.process])
    else:
        try:
            child.process.wait(GRACE)
        except subprocess.TimeoutExpired:
            _end_processes([child.process])
    for stream in child.received:
        if stream:
            stream.close()
    running.discard(child)
    child.job.done(child.ended())


def _end_processes(processes: list[Process]) -> None:
    """End the processes: SIGTERM to all, SIGKILL to those left a moment later."""
    for process in processes:
        process.terminate()
    limit = time.monotonic() + GRACE
    for process in processes:
        try:
            process.wait(max(0.0, limit - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
