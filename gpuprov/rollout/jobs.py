"""The process that does a job: `gpuprov fleet work`, which outlives the engine that started it and is recognised by its
lock."""

import fcntl
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from gpuprov.fleet.policy.events import HostEnd
from gpuprov.fleet.policy.state import Job
from gpuprov.jobs import stored
from gpuprov.jobs.cut import cut
from gpuprov.jobs.model import Fleet, digest_of
from gpuprov.jobs.model import Job as JobFile
from gpuprov.rollout.locks import is_held, opened
from gpuprov.rollout.results import Results

# Bytes of standard error that are read; the last line is reported if there is no result.
TAIL = 4096


def job_file(fleet: Fleet, number: int, hosts: Sequence[str]) -> JobFile:
    """Return the job file with the slice of these hosts."""
    names = frozenset(hosts)
    chosen = msgspec.structs.replace(fleet, hosts=tuple(host for host in fleet.hosts if host.name in names))
    [made] = cut(chosen, size=len(chosen.hosts))
    made = msgspec.structs.replace(made, number=number, of=number)
    return msgspec.structs.replace(made, digest=digest_of(made))


def at_work(place: Path) -> list[int]:
    """Return the numbers of the jobs in a roll-out's folder whose process is alive."""
    return [int(file.stem) for file in sorted(place.glob("jobs/[0-9]*.lock")) if is_held(file)]


class Worker:
    """The process of one job. It holds a lock on a file as long as it lives, whoever started it. `words`: makes the
    command that does it, up to the job's file."""

    def __init__(self, place: Path, run: str, job: Job, words: Callable[[Job], Sequence[str]]) -> None:
        self.job, self._words = job, words
        name = f"{job.number:04}"
        self._file = place / "jobs" / f"job-{name}.json"
        self._lock, self._out, self._err = (place / "jobs" / f"{name}.{end}" for end in ("lock", "ndjson", "err"))
        self._results = Results(place / "results" / f"{name}-{job.act}", run, job.act)
        self._process: subprocess.Popen[bytes] | None = None

    def new(self) -> Iterator[HostEnd]:
        """Yield the results that have come."""
        return self._results.new(self.job.left)

    def forget(self) -> None:
        """Repeat the last results, because they could not be recorded."""
        self._results.seen.clear()

    def start(self, fleet: Fleet) -> None:
        """Do the rest of the job. Starts nothing if its process is still alive."""
        for folder in (self._file.parent, self._results.folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = opened(self._lock, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            left = [host for host in self.job.hosts if host in self.job.left]
            stored.save(job_file(fleet, self.job.number, left), self._file)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            out, err = (opened(path, flags) for path in (self._out, self._err))
            words = [*self._words(self.job), str(self._file), "--results", str(self._results.folder)]
            try:
                self._process = subprocess.Popen(
                    words, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True, pass_fds=(lock,)
                )
            finally:
                os.close(out)
                os.close(err)
        except BlockingIOError:
            pass
        finally:
            os.close(lock)

    def lives(self) -> bool:
        """Return whether its process is alive, whether or not it is a child of this engine."""
        if self._process:
            self._process.poll()
        return is_held(self._lock)

    def last_words(self) -> str:
        """Return its last line on standard error, ignoring the fix that follows an error."""
        with suppress(OSError), open(self._err, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
            lines = file.read().decode(errors="replace").strip().splitlines()
            return next((line[:300] for line in reversed(lines) if not line.lstrip().startswith("fix: ")), "")
        return ""
