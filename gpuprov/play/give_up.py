"""Undo the preparations for a step that failed, and fail with that step's reason.

Services that were stopped for it start again; for a driver's step, modules in the staging area are deleted, and an
unloaded driver is loaded again. Errors in the process never hide the reason: they are added to it.

failure: The result of the task that failed (ansible_failed_result).
services: Units that may have been stopped, in the order in which they are stopped.
driver: True if it was a step of the driver.
pack: The archive of modules in the staging area (step driver_modules).
"""

from typing import TypedDict

from gpuprov.core import ended
from gpuprov.host_code import giving_up
from gpuprov.play.host import Host, Result

DRIVER = (
    ("driver_modules", "cleared", "the modules that were built aside were not taken away"),
    ("driver_loaded", "back", "the old driver was not loaded again"),
)


class Arguments(TypedDict, total=False):
    """Those of the task."""

    failure: Result
    services: list[str]
    driver: bool
    pack: str


def run(host: Host, arguments: Arguments) -> Result:
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


def _explain(failure: Result) -> Result:
    """Return the result of the step; a module without an answer is described by how it ended."""
    items = [_explain(item) if isinstance(item, dict) else item for item in failure.get("results") or []]
    message = ended.answer(failure)
    explained: Result = {**failure, "msg": message or failure.get("msg", ""), "results": items}
    if message != failure.get("msg"):
        explained["stderr"] = ""  # what it printed last is in the message
    return explained
