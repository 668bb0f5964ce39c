"""`apply --drain 'kubernetes [OPTION]...'`: a node is drained while a play holds its host's lock, and given back by the
same run."""

import re
import shlex
import time

import msgspec

from gpuprov.core.errors import GpuprovError
from gpuprov.fleet.drain.base import Step, checked_run, format_undrain
from gpuprov.fleet.drain.kubernetes.adapter import NOT_OURS, Kubernetes

# Seconds between two polls.
POLL = 5.0
# Seconds for what ends by itself within minutes: operands that end, an API server that comes back.
PATIENCE = 300.0
ALLOWED = "allowed: --delete-emptydir-data, --timeout=20m (s, m, h; default: no end), --context=NAME"
UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}


class Asked(msgspec.Struct, frozen=True):
    """Options after the word `kubernetes`. timeout: seconds in which jobs have to leave; None: no end."""

    timeout: float | None = None
    context: str = ""
    empty_dir: bool = False


def parse_options(command: str, run: str) -> Asked | None:
    """Parse the options of a drain command `kubernetes [OPTION]...`; None for a site's own command. Raises
    GpuprovError.

    run: the id that the node will be marked with.
    """
    if command.split()[:1] != ["kubernetes"]:
        return None
    if run:
        checked_run(run)
    try:
        words = shlex.split(command)[1:]
    except ValueError as error:
        raise GpuprovError(f"--drain {command!r} cannot be read: {str(error).lower()}", "close the quote") from error
    options = Asked()
    while words:
        name, has_value, value = words.pop(0).partition("=")
        if name in ("--timeout", "--context") and not has_value and words:
            has_value, value = "=", words.pop(0)
        if name == "--delete-emptydir-data" and not has_value:
            options = msgspec.structs.replace(options, empty_dir=True)
        elif name == "--timeout" and (time_ := re.fullmatch(r"(\d{1,9})([smh]?)", value)):
            options = msgspec.structs.replace(options, timeout=(int(time_[1]) * UNITS[time_[2]]) or None)
        elif name == "--context" and value:
            options = msgspec.structs.replace(options, context=value)
        else:
            raise GpuprovError(f"--drain kubernetes has no {name[:80]}{has_value}{value[:80]}", ALLOWED)
    return options


def take_out(given: Asked, node: str, run: str) -> str:
    """Cordon the node and wait until pods and GPU operands have left. Returns a note for the user. Raises
    GpuprovError."""
    adapter = Kubernetes(context=given.context, empty_dir=given.empty_dir, apply=True)
    step = adapter.drain(node, run)
    if step.state != "done":
        raise _make_error(step)
    began = moved = time.monotonic()
    while True:
        before, step = step, adapter.drained(node, run)
        now = time.monotonic()
        if step.state == "done":
            return step.message
        if (step.state, step.waits_for) != (before.state, before.waits_for):
            moved = now
        late = now - began >= given.timeout if given.timeout else step.holds != "jobs" and now - moved >= PATIENCE
        if step.state == "refused" or step.holds == "a person" or late:
            raise _make_error(step)
        time.sleep(POLL)


def left(given: Asked, node: str, run: str) -> str:
    """Return the id of the apply that has the node out; empty if none has. Raises GpuprovError."""
    step = Kubernetes(context=given.context, apply=True).left(node, run)
    if step.state != "done":
        raise GpuprovError(f"node {step.node} was not looked at: {step.message}", step.fix or "apply again")
    return step.message


def take_over(given: Asked, node: str, run: str) -> None:
    """Take over a node that an earlier apply has left: this run has the host's lock. Raises GpuprovError."""
    step = Kubernetes(context=given.context, apply=True).drain(node, run)
    if step.state != "done":
        raise _make_error(step)


def stays(node: str, run: str) -> str:
    """Describe a node that stays out because its host is not green."""
    return f"node {node} stays cordoned: its host is not known to be as its spec says. {later(run)}"


def later(run: str, context: str = "") -> str:
    """Describe how to give back a node that stays out."""
    return f"Give it back later: {format_undrain('kubernetes', run, context=context)}"


def give_back(given: Asked, node: str, run: str, *, green: bool) -> tuple[bool, str]:
    """Give back what this run has drained. Returns whether anything was changed, and why the node stays out. Raises
    GpuprovError."""
    step = Kubernetes(context=given.context, apply=True).returned(node, run, green)
    if step.state == "refused":
        return False, f"node {step.node}: {step.message}. {later(run, given.context)}"
    if step.state != "done":
        raise GpuprovError(f"node {step.node} was not returned to service: {step.message}", "apply again")
    return step.message != NOT_OURS, ""


def _make_error(step: Step) -> GpuprovError:
    reasons = "; ".join((*step.waits_for[:5], *([f"and {len(step.waits_for) - 5} more"] if step.waits_for[5:] else [])))
    message = f"node {step.node} is not free: {step.message}{f': {reasons}' if reasons else ''}"
    return GpuprovError(message, step.fix or "resolve what holds it, then apply again")
