"""Keeps the leases of hosts that wait while Ansible works on others: it goes task by task, so that one slow host has all wait."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence

from gpuprov import reading
from gpuprov.apply.aftermath import WORKERS, composed
from gpuprov.errors import GpuprovError, UnreachableError
from gpuprov.gather.children import Job, run_all
from gpuprov.gather.script import split
from gpuprov.gather.transport import Answer, job
from gpuprov.plan.host_lock import command
from gpuprov.probe.base import Output
from gpuprov.spec.model import RawHost

SHARE = 4
"""A host is asked to keep its lease when so much of it (a fourth) has passed since it was heard of."""
LIMIT = 20.0
"""Seconds for one round over all hosts."""


class Keeper:
    """Who was heard of when. What a task does on a host renews its lease by itself."""

    def __init__(self, hosts: Sequence[RawHost], owner: Mapping[str, object], lease: float, at_a_time: int = 0) -> None:
        self._hosts, self._lease, self._at_a_time = hosts, lease, at_a_time or WORKERS
        self._owner = owner
        self._heard: dict[str, float] = {}
        self._over = threading.Event()

    def heard(self, host: str) -> None:
        """Something was just done on the host."""
        self._heard[host] = time.monotonic()

    @contextlib.contextmanager
    def keeping(self) -> Iterator[None]:
        """Leases are kept while inside."""
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join(LIMIT)

    def _run(self) -> None:
        while not self._over.wait(min(self._lease / SHARE / 2, 60.0)):
            silent = [raw for raw in self._hosts if self._silent(raw.name)]
            # A lease that cannot be kept costs the run its next step, which says so; whatever it was, the next round is made.
            with contextlib.suppress(Exception):
                run_all((one for raw in silent if (one := self._job(raw))), self._at_a_time)

    def _silent(self, name: str) -> bool:
        """Whether it took part and has not been heard of for long. One that has not begun holds no lock."""
        heard = self._heard.get(name)
        return heard is not None and time.monotonic() - heard >= self._lease / SHARE

    def _job(self, raw: RawHost) -> Job | None:
        def done(answer: Answer) -> None:
            if _refused(answer):
                self._heard.pop(raw.name, None)  # what the run does there next is refused, too, and says by whom
            else:
                self.heard(raw.name)

        try:
            script = composed(command("renew", self._owner, raw.name), LIMIT)
            return job(raw, script, min(LIMIT, self._lease / SHARE), done)
        except GpuprovError:
            return None


def _refused(answer: Answer) -> bool:
    """Whether the host says that the lock is not this run's any more. One that was not reached says nothing."""
    if isinstance(answer, UnreachableError):
        return False
    with contextlib.suppress(ValueError):
        told = reading.json((split(answer) or {}).get("leave", Output("")).text)
        return isinstance(told, Mapping) and told.get("held") is False
    return False
