"""Draining and returning hosts in the workflow: a site's worker is asked at once when a question is due; a timer runs
between two rounds."""

import asyncio
from collections.abc import Callable, Iterable
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    import msgspec

    from gpuprov.fleet.drain import Step
    from gpuprov.fleet.policy import decide
    from gpuprov.fleet.policy.events import Event
    from gpuprov.fleet.policy.planned import Plan
    from gpuprov.fleet.policy.policy import seconds
    from gpuprov.fleet.policy.state import State
    from gpuprov.rollout.drains import Ask, follows, waited_for
    from gpuprov.rollout.temporal import messages
    from gpuprov.rollout.temporal.messages import Answers, Begin, Questions

LONGEST = timedelta(hours=1)
AGAIN = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=30))


class Asking:
    """The questions to the adapter, one at a time for each host."""

    def __init__(self, begin: Begin, plan: Plan, add: Callable[[Event], None], wake: Callable[[], None]) -> None:
        self._begin, self._plan, self._add, self._wake = begin, plan, add, wake
        self._poll = float(seconds(plan.policy.drain.poll)) if plan.policy.drain else 0.0
        self._out: set[str] = set()
        self._questions: dict[str, tuple[Ask, float]] = {}
        self._calls: dict[str, asyncio.Task[None]] = {}
        self.waits: dict[str, str] = {}

    @property
    def busy(self) -> bool:
        """Return whether an answer is pending."""
        return bool(self._calls)

    def go_on(self, state: State, returns: Iterable[decide.Return], now: float) -> float | None:
        """Ask the questions that are due; return the time of the next ones."""
        desired: dict[str, Ask] = {returned.host: "return" if returned.green else "keep" for returned in returns}
        for name, host in state.hosts.items():
            if host.stage == "draining" and name not in desired:
                desired[name] = "drained" if name in self._out else "drain"
        for name in [
            host_name for host_name in self._questions if host_name not in desired and host_name not in self._calls
        ]:
            del self._questions[name]
            self.waits.pop(name, None)
            self._out.discard(name)
        due: dict[str, Ask] = {}
        later: list[float] = []
        for name, ask in desired.items():
            if name in self._calls:
                continue
            before, at = self._questions.get(name, (ask, now))
            if before != ask or at <= now:
                due[name] = ask
            else:
                later.append(at)
        for site, hosts in self._plan.by_site(due).items():
            task = asyncio.create_task(self._ask(site, [(due[name], name) for name in hosts]))
            self._calls.update(dict.fromkeys(hosts, task))
        return min(later, default=None)

    async def _ask(self, site: str, questions: list[tuple[Ask, str]]) -> None:
        begin = self._begin
        words = Questions(rollout=begin.rollout, fleet=begin.fleet, policy=begin.policy, questions=tuple(questions))
        try:
            answers = await workflow.execute_activity(
                "ask",
                messages.plain(words),
                task_queue=messages.queue(site),
                start_to_close_timeout=LONGEST,
                heartbeat_timeout=timedelta(seconds=begin.heartbeat),
                retry_policy=AGAIN,
            )
            steps = msgspec.convert(answers, Answers).steps
        except ActivityError as error:
            broken = Step(host="", node="", state="unknown", message=str(error.cause or error))
            steps = (broken,) * len(questions)
        now = workflow.now().timestamp()
        for (ask, name), step in zip(questions, steps, strict=True):
            del self._calls[name]
            self._questions[name] = (ask, now + self._poll)
            if event := follows(ask, name, step, now):
                self._add(event)
                continue
            if (ask, step.state) == ("drain", "done"):
                self._out.add(name)
            self.waits[name] = waited_for(step)
        self._wake()
