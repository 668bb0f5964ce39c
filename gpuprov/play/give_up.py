"""Undo the preparations for a step that failed, and fail with that step's reason.

Services that were stopped for it start again; for a driver's step, modules in the staging area are deleted, and an
unloaded driver is loaded again. Errors in the process never hide the reason: they are added to it.

failure: The result of the task that failed (ansible_failed_result).
services: Units that may have been stopped, in the order in which they are stopped.
driver: True if it was a step of the driver.
pack: The archive of modules in the staging area (step driver_modules).
"""

from typing import Any

from gpuprov.core import ended
from gpuprov.host_code import giving_up
from gpuprov.play.host import Host

DRIVER = (
    ("driver_modules", "cleared", "the modules that were built aside were not taken away"),
    ("driver_loaded", "back", "the old driver was not loaded again"),
)

ARGUMENTS = frozenset("failure services driver pack".split())


def run(host: Host, arguments: dict[str, Any]) -> dict[str, Any]:
    """Undo the driver's own changes, then start the services; always failed."""
    left = []
    for name, state, words in DRIVER if arguments.get("driver") else ():
        more = {"pack": str(arguments.get("pack") or "")} if state == "cleared" else {}
        answer = host.step(name, state=state, **more)
        if answer.get("failed"):
            left.append(f"{words}: {ended.answer(answer)}")
    started = host.step("clients", state="started", services=list(arguments["services"]), tolerant=True)
    if started.get("failed"):
        left.append(f"what was stopped for it was not started again: {ended.answer(started)}")
    message = giving_up.describe_failure(
        _explain(arguments.get("failure") or {}), left, started.get("not_started") or []
    )
    return {"failed": True, "changed": bool(started.get("started")), "msg": message}


def _explain(failure: dict[str, Any]) -> dict[str, Any]:
    """Return the result of the step; a module without an answer is described by how it ended."""
    items = [_explain(item) if isinstance(item, dict) else item for item in failure.get("results") or []]
    message = ended.answer(failure)
    alone = {} if message == failure.get("msg") else {"stderr": ""}  # what it printed last is in it
    return {**failure, **alone, **({"msg": message} if message else {}), **({"results": items} if items else {})}
