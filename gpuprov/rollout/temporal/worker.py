"""`gpuprov fleet worker`: does the jobs of one site, and helps to carry out roll-outs. It dials out; nothing dials
in."""

import asyncio
import signal
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from temporalio.client import Client
from temporalio.worker import Worker

from gpuprov.core import terminal
from gpuprov.rollout.temporal import messages
from gpuprov.rollout.temporal.activities import Activities
from gpuprov.rollout.temporal.connect import Connection, connected
from gpuprov.rollout.temporal.files import Files
from gpuprov.rollout.temporal.hosts import Hosts
from gpuprov.rollout.temporal.runner import Runner
from gpuprov.rollout.temporal.workflow import Rollout

# Concurrent jobs of all roll-outs: the policies limit how many each has.
JOBS = 64


def run(given: Connection, site: str, folder: Path, words: Sequence[str]) -> int:
    """Run until asked to end (SIGTERM, Ctrl-C). Running jobs continue, and the next worker here waits for them."""
    return asyncio.run(_run(given, site, Files(folder), words))


async def _run(given: Connection, site: str, files: Files, words: Sequence[str]) -> int:
    client = await connected(given)
    over = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    working = [asyncio.create_task(worker.run()) for worker in workers(client, site, files, words)]
    terminal.progress(f"the worker of site {site} is at work; it keeps what it does in {files.folder}")
    ending = asyncio.create_task(over.wait())
    await asyncio.wait([ending, *working], return_when=asyncio.FIRST_COMPLETED)
    for task in (ending, *working):
        task.cancel()
    for task in working:
        with suppress(asyncio.CancelledError):
            await task
    return 0


def workers(client: Client, site: str, files: Files, words: Sequence[str]) -> list[Worker]:
    """Return the workers for the site's own queue, the roll-outs' queue, and the queue of the workflow that knows their
    hosts."""
    does = Activities(client, files, words)
    runner, end = Runner(), timedelta(seconds=0)
    return [
        Worker(
            client,
            task_queue=messages.queue(site),
            activities=[does.work, does.ask],
            max_concurrent_activities=JOBS,
            graceful_shutdown_timeout=end,
        ),
        Worker(
            client,
            task_queue=messages.QUEUE,
            workflows=[Rollout],
            activities=[does.load, does.claim, does.release],
            workflow_runner=runner,
            graceful_shutdown_timeout=end,
        ),
        Worker(client, task_queue=messages.HOSTS_QUEUE, workflows=[Hosts], workflow_runner=runner),
    ]
