"""Temporal as used by the commands: the server stores roll-outs, and workers carry them out."""

import asyncio
import time
from collections.abc import Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import (
    Client,
    WorkflowExecution,
    WorkflowExecutionStatus,
    WorkflowHandle,
    WorkflowQueryFailedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from gpuprov.core import terminal
from gpuprov.core.errors import GpuprovError, UnreachableError
from gpuprov.fleet.policy.events import Event
from gpuprov.fleet.policy.planned import Plan
from gpuprov.fleet.policy.state import State
from gpuprov.rollout.approvals import Said
from gpuprov.rollout.base import Now, Tell
from gpuprov.rollout.kept import Kept, checked_id, chosen, is_over, overlaps, used
from gpuprov.rollout.project import Project
from gpuprov.rollout.temporal import messages
from gpuprov.rollout.temporal.connect import Connection, connected
from gpuprov.rollout.temporal.files import Files
from gpuprov.rollout.temporal.messages import Begin, Loaded, Refusal, Site
from gpuprov.rollout.temporal.workflow import Rollout
from gpuprov.rollout.text import line

PATIENCE = timedelta(seconds=30)
# Seconds between two checks while waiting for a roll-out.
LOOKED = 1.0
# Hosts of one roll-out: when a long history is restarted, their state is passed on in one payload, of 2 MB at most.
MOST = 20_000
T = TypeVar("T")
GONE = (WorkflowExecutionStatus.CONTINUED_AS_NEW, WorkflowExecutionStatus.FAILED)


class Temporal:
    """The roll-outs of one namespace."""

    def __init__(self, given: Connection, folder: Path) -> None:
        self._given, self._files = given, Files(folder)
        self._runner = asyncio.Runner()
        self._client: Client = self._run(connected(given))
        self._plans: dict[str, Plan] = {}
        self.heartbeat = 60.0

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        try:
            return self._runner.run(call)
        except WorkflowQueryFailedError as error:
            fix = "ask again; what a worker has printed says why"
            raise UnreachableError(f"a worker could not answer: {error}", fix) from error
        except (RPCError, WorkflowUpdateRPCTimeoutOrCancelledError) as error:
            raise UnreachableError(*_describe_error(error)) from error

    def _handle(self, rollout: str) -> WorkflowHandle[Any, Any]:
        return self._client.get_workflow_handle(messages.workflow_id(rollout))

    def _query(self, rollout: str, name: str, *words: Any) -> Any:
        call = self._handle(rollout).query(name, *words, rpc_timeout=PATIENCE)
        return self._run(call)

    def all(self) -> list[Kept]:
        async def listed() -> list[Kept]:
            executions = self._client.list_workflows(f'WorkflowType = "{messages.ROLLOUT}"')
            return [await _make_kept(execution) async for execution in executions if execution.status not in GONE]

        return sorted(self._run(listed()), key=lambda kept: (kept.begun, kept.id))

    def get(self, rollout: str = "") -> Kept:
        if not rollout:
            return chosen(self.all())

        async def described() -> Kept | None:
            try:
                execution = await self._handle(rollout).describe()
            except RPCError as error:
                if error.status == RPCStatusCode.NOT_FOUND:
                    return None
                raise
            return None if execution.status in GONE else await _make_kept(execution)

        return self._run(described()) or chosen(self.all(), rollout)

    def plan(self, rollout: str) -> Plan:
        if rollout not in self._plans:
            loaded = self._query(rollout, "plan")
            if loaded is None:
                message = f"the roll-out {rollout} has not begun yet: no worker has read its files"
                raise GpuprovError(message, "gpuprov fleet worker says what it lacks; then ask again")
            self._plans[rollout] = msgspec.convert(loaded, Loaded).plan()
        return self._plans[rollout]

    def policy(self, rollout: str) -> str:
        async def memo() -> str:
            return str((await (await self._handle(rollout).describe()).memo())["policy"])

        return self._run(memo())

    def events(self, rollout: str, seen: int = 0) -> list[Event]:
        received: list[Event] = []
        while True:
            some = messages.unpacked(self._query(rollout, "events", seen + len(received)), list[Event])
            received += some
            if len(some) < messages.EVENTS_AT_ONCE:
                return received

    def now(self, rollout: str) -> Now | None:
        is_open = self.get(rollout).open
        if not is_open or not self._has_worker(messages.QUEUE, TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW):
            return None
        site = msgspec.convert(self._query(rollout, "now"), Site)
        lacking = [*self._without_worker(self.plan(rollout))]
        return Now(waits=[*site.waits, *lacking], until=site.until, hosts=site.hosts)

    def _without_worker(self, plan: Plan) -> list[str]:
        """List the sites without a worker."""
        activity = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
        sites = dict.fromkeys(plan.sites.get(name, "") or "default" for name in plan.domains)
        return [
            f"no worker of site {site} is there: gpuprov fleet worker --site {site}"
            for site in sites
            if not self._has_worker(messages.queue(site), activity)
        ]

    def _has_worker(self, queue: str, kind: TaskQueueType.ValueType) -> bool:
        request = DescribeTaskQueueRequest(
            namespace=self._client.namespace, task_queue=TaskQueue(name=queue), task_queue_type=kind
        )
        return bool(self._run(self._client.workflow_service.describe_task_queue(request)).pollers)

    def results(self, rollout: str) -> str:
        folder = self._files.place(rollout) / "results"
        return str(folder) if folder.is_dir() else ""

    def check(self, made: Project) -> None:
        checked_id(made.id)
        if len(made.fleet.hosts) > MOST:
            message = f"{len(made.fleet.hosts):,} hosts in one roll-out: at most {MOST:,} on this engine"
            raise GpuprovError(message, "one roll-out for each part of them: --limit")
        if not self._has_worker(messages.QUEUE, TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW):
            message = f"no worker of this version is there ({messages.QUEUE}): nothing was begun"
            raise GpuprovError(
                message, "gpuprov fleet worker --site SITE, at each site, with the same --address and --namespace"
            )
        for warning in self._without_worker(made.plan):
            terminal.progress(warning)

    def begin(self, made: Project, policy_text: bytes) -> None:
        checked_id(made.id)
        digest = self._files.keep(made, policy_text)
        fleet, name = made.fleet.digest, made.id
        begin = Begin(rollout=name, fleet=fleet, policy=digest, by=made.user, heartbeat=self.heartbeat)
        about = {
            "fleet": fleet,
            "policy": digest,
            "begun": time.time(),
            "by": made.user,
            "hosts": len(made.fleet.hosts),
        }

        async def started() -> Refusal | None:
            handle = await self._client.start_workflow(
                Rollout.run,
                messages.plain(begin),
                id=messages.workflow_id(name),
                task_queue=messages.QUEUE,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY,
                memo=about,
            )
            refusal = await handle.execute_update(Rollout.begun, id=f"begun-{name}", rpc_timeout=PATIENCE)
            return msgspec.convert(refusal, Refusal) if refusal else None

        try:
            if refused := self._run(started()):
                raise overlaps(refused.rollout, refused.hosts)
        except WorkflowAlreadyStartedError as error:
            raise used(name) from error

    def say(self, rollout: str, request: Said) -> Event | None:
        if not self.get(rollout).open:
            raise is_over(rollout)
        call = self._handle(rollout).execute_update("say", messages.plain(request), rpc_timeout=PATIENCE)
        try:
            event = self._run(call)
        except WorkflowUpdateFailedError as error:
            raise _make_refusal(error) from error
        return msgspec.convert(event, Event) if event else None

    def carry_out(self, rollout: str, tell: Tell) -> bool:
        """Wait until the roll-out is over or stopped, retrying if the server is not reached. Workers carry it out."""
        state: State | None = None
        reported: list[str] = []
        while True:
            try:
                state = state or State(self.plan(rollout))
                for event in self.events(rollout, state.seen):
                    state.add(event)
                    if words := line(event, state):
                        tell(words)
                waits = (self.now(rollout) or Now()).waits if not state.finished else []
            except UnreachableError as error:
                waits = [f"{error.message}; the roll-out goes on without this process"]
            for why in waits:
                if why not in reported:
                    tell(why)
            reported = waits
            if state and (state.finished or (state.stopped and not state.busy)):
                return True
            self._pause(rollout, tell)

    @staticmethod
    def _pause(rollout: str, tell: Tell) -> None:
        try:
            time.sleep(LOOKED)
        except KeyboardInterrupt:
            tell(f"the roll-out goes on without this process; gpuprov rollout pause {rollout} stops new work")
            raise


async def _make_kept(execution: WorkflowExecution) -> Kept:
    memo = await execution.memo()
    name = execution.id.removeprefix(messages.workflow_id(""))
    is_open = execution.status == WorkflowExecutionStatus.RUNNING
    return Kept(name, memo["fleet"], float(memo["begun"]), memo["by"], is_open, int(memo["hosts"]))


def _make_refusal(error: WorkflowUpdateFailedError) -> GpuprovError:
    cause = error.cause
    if isinstance(cause, ApplicationError):
        return GpuprovError(cause.message, str(cause.details[0]) if cause.details else "")
    return GpuprovError(f"Temporal: {cause or error}")


def _describe_error(error: Exception) -> tuple[str, str]:
    """Describe the error between this machine and a worker."""
    status = getattr(error, "status", None)
    if status == RPCStatusCode.NOT_FOUND:
        return "Temporal does not know this roll-out", "gpuprov rollout status --all lists what it knows"
    if status == RPCStatusCode.UNAVAILABLE:
        return f"Temporal is not reached: {error}", "see whether the server runs; then the same again"
    fix = "see whether a worker runs: gpuprov fleet worker --site SITE; then the same again"
    return f"no worker has answered in {PATIENCE.seconds} s: {error}", fix
