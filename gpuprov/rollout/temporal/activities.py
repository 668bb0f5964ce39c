"""The activities of a worker: jobs and questions of its site; files and claims for the workflows."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from temporalio import activity
from temporalio.client import Client, WithStartWorkflowOperation, WorkflowExecutionStatus
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from gpuprov.core.errors import GpuprovError
from gpuprov.fleet.drain import Adapter, Step
from gpuprov.fleet.policy.events import HostEnd
from gpuprov.fleet.policy.state import Job
from gpuprov.rollout import drains
from gpuprov.rollout.jobs import Worker
from gpuprov.rollout.project import Project, addresses
from gpuprov.rollout.temporal import messages
from gpuprov.rollout.temporal.files import Files
from gpuprov.rollout.temporal.hosts import Hosts
from gpuprov.rollout.temporal.messages import Answers, JobAsked, JobEnded, Questions, Refusal

# Seconds between two checks of a job's results; each check is a heartbeat, which the SDK sends less often.
TICK = 0.5
BEAT = 5.0


class Activities:
    """Activities of a worker. `words`: the program that does a job, with the options that this worker gives it."""

    def __init__(self, client: Client, files: Files, words: Sequence[str]) -> None:
        self._client, self._files, self._words = client, files, tuple(words)
        self._at_once = asyncio.Semaphore(drains.AT_ONCE)

    @activity.defn(name="load")
    async def load(self, fleet: str, policy: str) -> Any:
        """Return the members of a fleet, and a policy."""
        try:
            return messages.plain(await asyncio.to_thread(self._files.loaded, fleet, policy))
        except GpuprovError as error:
            raise ApplicationError(error.message, type="files") from error

    @activity.defn(name="claim")
    async def claim(self, rollout: str, fleet: str) -> Any:
        """Claim the hosts of a fleet for a roll-out, or return the roll-out that has some of them. Hosts of a
        terminated roll-out are free."""
        try:
            hosts = messages.packed(await asyncio.to_thread(self._hosts, fleet))
        except GpuprovError as error:
            raise ApplicationError(error.message, type="files") from error
        while refusal := await self._registry(Hosts.claim, [rollout, hosts]):
            if await self._is_open(msgspec.convert(refusal, Refusal).rollout):
                return refusal
            await self._registry(Hosts.release, [msgspec.convert(refusal, Refusal).rollout])
        return None

    def _hosts(self, fleet: str) -> list[tuple[str, str]]:
        return addresses(self._files.fleet_of(fleet))

    @activity.defn(name="release")
    async def release(self, rollout: str) -> None:
        """Free its hosts for another roll-out."""
        await self._registry(Hosts.release, [rollout])

    async def _registry(self, update: Any, words: list[str]) -> Any:
        begin: Any = WithStartWorkflowOperation(
            Hosts.run,
            {},
            id=messages.HOSTS,
            task_queue=messages.HOSTS_QUEUE,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        )
        return await self._client.execute_update_with_start_workflow(update, args=words, start_workflow_operation=begin)

    async def _is_open(self, rollout: str) -> bool:
        try:
            described = await self._client.get_workflow_handle(messages.workflow_id(rollout)).describe()
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return False
            raise
        return described.status == WorkflowExecutionStatus.RUNNING

    @activity.defn(name="work")
    async def work(self, words: dict[str, Any]) -> Any:
        """Do a job in its own process. If a process that an earlier worker started here is still alive, wait for it."""
        request = msgspec.convert(words, JobAsked)
        try:
            place = self._files.place(request.rollout)
            made = await self._made(request.rollout, request.fleet, request.policy)
        except GpuprovError as error:
            return messages.plain(JobEnded(ends=(), message=error.message))
        return messages.plain(await self._worked(request, made, place))

    async def _worked(self, request: JobAsked, made: Project, place: Path) -> JobEnded:
        job = Job(request.number, request.act, request.hosts, {*request.hosts}, request.repairs)

        def make_words(job: Job) -> list[str]:
            return [*self._words, "--run", request.rollout, *made.words(job)]

        worker, begun = Worker(place, request.rollout, job, make_words), False
        ends: dict[str, HostEnd] = {}
        while True:
            lives = worker.lives()  # before its results are read: what it wrote last is among them then
            ends |= {end.host: end for end in worker.new()}
            activity.heartbeat(len(ends), len(job.hosts))
            if not lives and (begun or len(ends) == len(job.hosts)):
                message = "" if len(ends) == len(job.hosts) else worker.last_words()
                return JobEnded(ends=tuple(ends.values()), message=message)
            if not lives:
                job.left -= ends.keys()
                job.repairs = max(0, request.repairs - sum(end.repair == "done" for end in ends.values()))
                await asyncio.to_thread(worker.start, made.fleet)
                begun = True
            await asyncio.sleep(TICK)

    @activity.defn(name="ask")
    async def ask(self, words: dict[str, Any]) -> Any:
        """Drain hosts, check whether they are free, or give them back."""
        given = msgspec.convert(words, Questions)
        try:
            adapter = (await self._made(given.rollout, given.fleet, given.policy)).adapter
        except GpuprovError as error:
            raise ApplicationError(error.message, type="files") from error
        assert adapter is not None, "only a policy with an adapter drains"
        calls = asyncio.gather(*(self._ask(adapter, ask, host, given.rollout) for ask, host in given.questions))
        while not (await asyncio.wait([calls], timeout=BEAT))[0]:
            activity.heartbeat()
        return messages.plain(Answers(tuple(calls.result())))

    async def _ask(self, adapter: Adapter, ask: drains.Ask, host: str, run: str) -> Step:
        async with self._at_once:
            try:
                return await asyncio.to_thread(drains.ask_adapter, adapter, ask, host, run)
            except GpuprovError as error:
                return Step(host="", node="", state="unknown", message=error.message)

    async def _made(self, rollout: str, fleet: str, policy: str) -> Project:
        return await asyncio.to_thread(self._files.project, rollout, fleet, policy)
