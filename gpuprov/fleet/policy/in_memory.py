"""The engine of a single process: it carries out the actions of `decide`, one job at a time, and keeps events in memory
only."""

import time
from collections.abc import Callable, Sequence

from gpuprov.fleet.policy import decide, events
from gpuprov.fleet.policy.events import HostEnd
from gpuprov.fleet.policy.planned import Plan
from gpuprov.fleet.policy.state import State


class InMemory:
    """A policy over some hosts, with one job at a time: it neither drains nor waits.

    `idle`: hosts on which there is nothing to do, with their states.
    """

    def __init__(self, plan: Plan, idle: Sequence[HostEnd] = (), clock: Callable[[], float] = time.time) -> None:
        self.state, self._clock = State(plan), clock
        if idle:
            self.state.add(decide.begun(self.state, "apply", tuple(end.host for end in idle), clock()))
            self.end(idle)

    def begin(self) -> tuple[str, ...]:
        """Begin the next job, and return its hosts; none if the policy stops, or nothing is left."""
        while not self.state.jobs:
            now = self._clock()
            if not decide.record(decide.following(self.state, now), self.state, now):
                break
        return tuple(name for job in self.state.jobs.values() for name in job.hosts)

    def end(self, hosts: Sequence[HostEnd]) -> None:
        """End the job that was begun, with the results of its hosts."""
        [number] = self.state.jobs
        self.state.add(events.Done(at=self._clock(), job=number, hosts=tuple(hosts)))
        self.state.add(events.JobOver(at=self._clock(), job=number))

    @property
    def batches(self) -> int:
        """Return the number of batches with hosts that wait for their turn."""
        return sum(
            any(host.stage == "waiting" for _, host in self.state.of(batch)) for batch in self.state.plan.batches
        )

    @property
    def waiting(self) -> int:
        """Return the number of hosts that wait for their turn."""
        return sum(host.stage == "waiting" for host in self.state.hosts.values())
