"""The workflow of one roll-out: it asks `decide`, as the embedded engine does, and carries out actions as activities
and timers.

It reads no file and no clock but the workflow's own, so that its history can be replayed anywhere with the same
outcome.
"""

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError

with workflow.unsafe.imports_passed_through():
    import msgspec

    from gpuprov.core.errors import GpuprovError
    from gpuprov.fleet.policy import decide, events
    from gpuprov.fleet.policy.events import Event
    from gpuprov.fleet.policy.state import Job, State, folded
    from gpuprov.rollout import approvals
    from gpuprov.rollout.kept import overlaps
    from gpuprov.rollout.temporal import messages
    from gpuprov.rollout.temporal.asking import Asking
    from gpuprov.rollout.temporal.messages import Begin, JobAsked, JobEnded, Loaded, Refusal

LONGEST_JOB = timedelta(days=7)
SHORT = timedelta(minutes=2)
# Retries of activities that a lost worker has left, or that a worker cannot do where it is: Temporal repeats them
# until they are done.
AGAIN = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=30))
NEW = (decide.Drain, decide.Work)


@workflow.defn(name=messages.ROLLOUT)
class Rollout:
    """A roll-out."""

    @workflow.init
    def __init__(self, given: dict[str, Any]) -> None:
        self._begin = msgspec.convert(given, Begin)
        self._loaded: Loaded | None = None
        self._state: State | None = None
        self._refused: Refusal | None = None
        self._log: list[Event] = []
        self._jobs: dict[int, asyncio.Task[None]] = {}
        self._waits: list[str] = []
        self._until: float | None = None
        self._changed = False

    @property
    def state(self) -> State:
        """Return the state; not available before it has begun."""
        if self._state is None:
            raise ApplicationError(f"the roll-out {self._begin.rollout} has not begun yet", type=messages.SAID)
        return self._state

    @workflow.run
    async def run(self, _given: dict[str, Any]) -> int:
        """Run until it is over; return the number of events."""
        begin = self._begin
        self._loaded = msgspec.convert(await self._ask_any("load", begin.fleet, begin.policy), Loaded)
        plan = self._loaded.plan()
        self._asking = Asking(begin, plan, self._add, self._wake)
        if not begin.log and (taken := await self._ask_any("claim", begin.rollout, begin.fleet)):
            await self._refuse(msgspec.convert(taken, Refusal))
        self._log = messages.unpacked(begin.log, list[Event]) if begin.log else []
        self._state = folded(plan, self._log)
        if not self._log:
            self._add(events.Started(at=self._now(), by=begin.by))
        while not self.state.finished:
            await self._look()
        await self._ask_any("release", begin.rollout)
        await workflow.wait_condition(workflow.all_handlers_finished)
        return len(self._log)

    async def _refuse(self, taken: Refusal) -> None:
        self._refused = taken
        await workflow.wait_condition(workflow.all_handlers_finished)
        raise ApplicationError(overlaps(taken.rollout, taken.hosts).message, type=messages.REFUSED, non_retryable=True)

    async def _look(self) -> None:
        """Check once for news and act on it; then wait for results, or until the next action may be due."""
        self._changed = False
        now = self._now()
        ends = workflow.info().is_continue_as_new_suggested()
        actions = [action for action in decide.following(self.state, now) if not (ends and isinstance(action, NEW))]
        recorded = False
        for action in actions:
            if (event := decide.event_of(action, self.state, now)) is not None:
                self._add(event)
                recorded = True
        if recorded:
            return
        waits = [action for action in actions if isinstance(action, decide.Wait)]
        self._waits = [] if self.state.paused or self.state.stopped else [wait.why for wait in waits]
        self._until = min((wait.until for wait in waits if wait.until is not None), default=None)
        if ends and not self._jobs and not self._asking.busy and workflow.all_handlers_finished():
            workflow.continue_as_new(
                messages.plain(msgspec.structs.replace(self._begin, log=messages.packed(self._log)))
            )
        for number, job in self.state.jobs.items():
            if number not in self._jobs:
                self._jobs[number] = asyncio.create_task(self._job(job))
        returns = [action for action in actions if isinstance(action, decide.Return)]
        due = None if ends else self._asking.go_on(self.state, returns, now)
        moments = [moment for moment in (self._until, due) if moment is not None]
        await self._wait(max(min(moments) - now, 0.0) if moments else None)

    async def _wait(self, seconds: float | None) -> None:
        """Wait with a durable timer, or until something happens."""
        timeout = None if seconds is None else timedelta(seconds=seconds, milliseconds=1)
        try:
            await workflow.wait_condition(lambda: self._changed, timeout=timeout)
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            if (reason := workflow.cancellation_reason()) is None or self.state.aborted:
                raise
            self._add(events.Aborted(at=self._now(), by="Temporal", why=reason or "the workflow was cancelled"))

    async def _job(self, job: Job) -> None:
        """Have a job done by its site's worker, with as many attempts as it takes; only its results count."""
        begin, site = self._begin, self.state.plan.sites.get(job.hosts[0], "")
        request = JobAsked(
            rollout=begin.rollout,
            fleet=begin.fleet,
            policy=begin.policy,
            number=job.number,
            act=job.act,
            hosts=job.hosts,
            repairs=job.repairs,
        )
        try:
            answer = await workflow.execute_activity(
                "work",
                messages.plain(request),
                task_queue=messages.queue(site),
                activity_id=f"job-{job.number}",
                start_to_close_timeout=LONGEST_JOB,
                heartbeat_timeout=timedelta(seconds=begin.heartbeat),
                retry_policy=AGAIN,
            )
            ended = msgspec.convert(answer, JobEnded)
        except ActivityError as error:
            ended = JobEnded(ends=(), message=str(error.cause or error))
        if ended.ends:
            self._add(events.Done(at=self._now(), job=job.number, hosts=ended.ends))
        del self._jobs[job.number]
        self._add(events.JobOver(at=self._now(), job=job.number, message=ended.message))

    async def _ask_any(self, activity: str, *words: str) -> Any:
        """Have any available worker run an activity."""
        return await workflow.execute_activity(
            activity, args=words, start_to_close_timeout=SHORT, retry_policy=AGAIN, activity_id=activity
        )

    def _add(self, event: Event) -> None:
        self._log.append(event)
        self.state.add(event)
        self._wake()

    def _wake(self) -> None:
        self._changed = True

    @staticmethod
    def _now() -> float:
        return workflow.now().timestamp()

    @workflow.update
    async def begun(self) -> dict[str, Any] | None:
        """Return None once it has begun; or the reason why it may not begin."""
        await workflow.wait_condition(lambda: self._state is not None or self._refused is not None)
        return messages.plain(self._refused) if self._refused else None

    @workflow.update
    async def say(self, words: dict[str, Any]) -> dict[str, Any] | None:
        """Record what a person says, and return the recorded event."""
        try:
            event = approvals.event_of(
                msgspec.convert(words, approvals.Said), self._begin.rollout, self.state, self._now()
            )
        except GpuprovError as error:
            raise ApplicationError(error.message, error.fix, type=messages.SAID, non_retryable=True) from error
        if event is None:
            return None
        self._add(event)
        return messages.plain(event)

    @workflow.query
    def plan(self) -> dict[str, Any] | None:
        """Return its hosts and its policy."""
        return messages.plain(self._loaded) if self._loaded else None

    @workflow.query
    def events(self, seen: int) -> str:
        """Return the events after the first `seen`, packed; not all at once."""
        return messages.packed(self._log[seen : seen + messages.EVENTS_AT_ONCE])

    @workflow.query
    def now(self) -> dict[str, Any]:
        """Return what it is waiting for."""
        hosts = self._asking.waits if self._state else {}
        return messages.plain(messages.Site(self._waits, self._until, hosts))
