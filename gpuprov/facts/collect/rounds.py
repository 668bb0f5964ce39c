"""Hosts whose sshd, or the jump host before them, drops connections while too many log in: tried again with fewer at a
time, while that helps."""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from gpuprov.core import terminal
from gpuprov.facts.collect.children import Job, run_all
from gpuprov.facts.collect.transport import Answer
from gpuprov.facts.collect.unreached import Unreached
from gpuprov.spec.model import RawHost

# Hosts per core: enough to fill a core with key exchanges while some hosts are slow or down. On 2 cores and 50 sshd,
# 16 to 32 at a time took 0.8 of the time of all at once; 64 gained nothing.
PER_CORE = 16


class Pace:
    """The limit of --forks, or none (0); lowered if hosts, or the jump host before them, drop connections."""

    def __init__(self, forks: int = 0) -> None:
        self.forks = forks

    @property
    def most(self) -> int:
        """Maximum number of hosts that are read at a time."""
        return self.forks or PER_CORE * (os.cpu_count() or 1)

    def slow_down(self, tried: int) -> None:
        """Lower the limit to a quarter of `tried`."""
        self.forks = max(1, tried // 4)


# Seconds before hosts whose connection was dropped are tried again.
PAUSE = 1.0
# If this multiple of the hosts tried at a time is dropped again in a row, their number is not the reason, but for
# example a jump host that rejects everybody. The others that are reached in the same way are left to the next, slower
# round; after the last round they are given up.
HELPLESS = 2
WAY = (
    "ansible_connection",
    "ansible_ssh_executable",
    "ansible_ssh_args",
    "ansible_ssh_common_args",
    "ansible_ssh_extra_args",
)


class Rounds:
    """Rounds of jobs by host, each with fewer at a time. A host that is tried again has not ended: `hears` holds back
    its answer until then."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._dropped: dict[str, Callable[[], None]] = {}
        self._again: dict[str, Callable[[], None]] = {}
        self._ways: dict[str, tuple[str, ...]] = {}
        self._in_a_row: Counter[tuple[str, ...]] = Counter()
        self._let_in = False

    def hears(self, raw: RawHost, done: Callable[[Answer], None]) -> Callable[[Answer], None]:
        """Return a callback for the end of the host's job; it calls `done` for hosts that will not be tried again."""
        name, way = raw.name, tuple(str(raw.connection.get(word) or "") for word in WAY)
        self._ways[name] = way

        def ended(answer: Answer) -> None:
            if isinstance(answer, Unreached) and answer.dropped:
                self._in_a_row[way] += 1
                self._dropped[name] = partial(done, answer)
                return
            self._in_a_row[way] = 0
            self._let_in = self._let_in or name in self._again
            done(answer)

        return ended

    def run(self, jobs: Mapping[str, Job]) -> None:
        """Run every job. If a slower pace has let a host in, `pace` keeps it."""
        waiting, forks = list(jobs), self._pace.forks
        while waiting:
            tried, total, left = min(self._pace.most, len(waiting)), len(waiting), list[str]()
            run_all(self._promising(waiting, HELPLESS * tried, jobs, left), self._pace.most)
            waiting = [*left, *self._dropped]
            self._again |= self._dropped
            self._dropped.clear()
            if waiting and tried == 1:
                break
            if waiting:
                self._pace.slow_down(tried)
                terminal.warning(_describe_round(len(waiting), total, tried, self._pace.forks))
                time.sleep(PAUSE)
        for name in waiting:
            self._again[name]()
        # They drop one alone, too: that is no reason to be slow with all the others.
        if self._again and not self._let_in:
            self._pace.forks = forks

    def _promising(self, names: Sequence[str], most: int, jobs: Mapping[str, Job], left: list[str]) -> Iterator[Job]:
        """Yield the jobs of these hosts, as long as a slower round lets some in; the others are added to `left`. The
        first round tries all."""
        self._in_a_row.clear()
        first = not self._again
        for name in names:
            if first or self._in_a_row[self._ways[name]] < most:
                yield jobs[name]
            else:
                left.append(name)


def _describe_round(dropped: int, hosts: int, tried: int, now: int) -> str:
    return (
        f"{dropped} of {hosts} hosts: sshd closed the connection before the login, while {tried} were reached at a "
        "time;"
        f" tried again, {now} at a time (--forks {now} does so from the start; MaxStartups of sshd_config is the "
        "limit there)"
    )
