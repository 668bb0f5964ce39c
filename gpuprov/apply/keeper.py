"""Renewal of leases for hosts that wait while Ansible works on others: it goes task by task, so that one slow host
delays all."""

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence

from gpuprov.apply.aftermath import WORKERS, composed
from gpuprov.core import safe_parse
from gpuprov.core.errors import GpuprovError, UnreachableError
from gpuprov.facts.collect.children import Job, run_all
from gpuprov.facts.collect.script import split
from gpuprov.facts.collect.transport import Answer, job
from gpuprov.facts.probes.base import Output
from gpuprov.host_code.fence import Owner
from gpuprov.plan.host_lock import command
from gpuprov.spec.model import RawHost

# The fraction (a fourth) of the lease after which a host is asked to renew it.
SHARE = 4
# Seconds for one round over all hosts.
LIMIT = 20.0


class Keeper:
    """Times of the last contact with each host. A task on a host renews its lease by itself."""

    def __init__(self, hosts: Sequence[RawHost], owner: Owner, lease: float, at_a_time: int = 0) -> None:
        self._hosts, self._lease, self._at_a_time = hosts, lease, at_a_time or WORKERS
        self._owner = owner
        self._heard: dict[str, float] = {}
        self._over = threading.Event()

    def heard(self, host: str) -> None:
        """Note that something was just done on the host."""
        self._heard[host] = time.monotonic()

    @contextlib.contextmanager
    def keeping(self) -> Iterator[None]:
        """Renew leases in this context."""
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
            # A lease that cannot be kept costs the run its next step, which says so; whatever it was, the next round is
            # made.
            with contextlib.suppress(Exception):
                run_all((host_job for raw in silent if (host_job := self._job(raw))), self._at_a_time)

    def _silent(self, name: str) -> bool:
        """Return whether a host took part and has long been silent. A host that has not begun holds no lock."""
        heard = self._heard.get(name)
        return heard is not None and time.monotonic() - heard >= self._lease / SHARE

    def _job(self, raw: RawHost) -> Job | None:
        def done(answer: Answer) -> None:
            if _was_refused(answer):
                self._heard.pop(raw.name, None)  # what the run does there next is refused, too, and says by whom
            else:
                self.heard(raw.name)

        try:
            script = composed(command("renew", self._owner, raw.name), LIMIT)
            return job(raw, script, min(LIMIT, self._lease / SHARE), done)
        except GpuprovError:
            return None


def _was_refused(answer: Answer) -> bool:
    """Return whether the host says that the lock is no longer this run's. A host that was not reached says nothing."""
    if isinstance(answer, UnreachableError):
        return False
    with contextlib.suppress(ValueError):
        leave_answer = safe_parse.parse_json((split(answer) or {}).get("leave", Output("")).text)
        return isinstance(leave_answer, Mapping) and leave_answer.get("held") is False
    return False
