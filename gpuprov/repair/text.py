"""Plan and outcome of a repair as text."""

from collections.abc import Iterator

from gpuprov.core.sanitize import cleaned, counted
from gpuprov.repair.model import HostPlan, HostRepair, Repaired, State
from gpuprov.report.text import labelled

WIDTH = 100
WORDS: dict[State, str] = {
    "fit": "fit for work: nothing to repair",
    "planned": "to be repaired",
    "repaired": "repaired: fit for work",
    "differs": "repaired, and not as its spec says",
    "given up": "given up",
    "refused": "refused",
    "locked": "locked",
    "unreachable": "not reached",
    "not proven": "not proven",
    "not started": "not started",
    "interrupted": "interrupted",
}


def format_plan(plan: HostPlan, width: int = WIDTH) -> str:
    """Format what would be done on a host."""
    return "\n".join([f"{cleaned(plan.host)}: {cleaned(plan.sentence or plan.message)}", *_list_plan(plan, width)])


def _list_plan(plan: HostPlan, width: int) -> Iterator[str]:
    for finding in plan.findings:
        action = f" [{finding.action}]" if finding.action else ""
        yield from labelled("because", f"{finding.check}{action}: {finding.found}", width)
    if plan.step not in ("reset", "reboot"):
        yield from labelled("nothing", plan.message, width)
        yield from labelled("fix", plan.fix, width)
        return
    if plan.drain:
        yield from labelled("drain", f"by {plan.drain}, unless others have it drained", width)
    if plan.holders:
        yield from labelled("in use", f"by {', '.join(plan.holders[:5])}: refused while they run", width)
    if plan.step == "reset":
        yield from _list_scope(plan, width)
    yield from labelled("reboot", _describe_reboot(plan), width)


def _list_scope(plan: HostPlan, width: int) -> Iterator[str]:
    scope = plan.scope
    gpus = "; ".join(map(str, scope.gpus))
    yield from labelled("reset", f"all GPUs together ({scope.why}): {gpus}" if scope.whole else gpus, width)
    if scope.together:
        yield from labelled("with", f"{'; '.join(map(str, scope.together))}: {scope.why}", width)
    if plan.loses:
        yield from labelled("gone", f"{'; '.join(plan.loses)}: no mig block brings them back", width)
    if plan.services:
        yield from labelled("stop", f"{', '.join(plan.services)}; started again after the reset", width)


def _describe_reboot(plan: HostPlan) -> str:
    if plan.step == "reboot":
        return "the host is rebooted"
    return (
        "the host, if the reset does not help"
        if plan.reboot
        else "none is permitted (--reboot, or reboot: if-needed in the spec)"
    )


def as_text(run: Repaired, width: int = WIDTH) -> str:
    """Format the outcome of each host, then the summary."""
    lines: list[str] = []
    for host in run.hosts:
        lines += _list_host(host, width)
    lines += ["", format_summary(run)]
    return "\n".join(lines) + "\n"


def _list_host(host: HostRepair, width: int) -> Iterator[str]:
    if host.state == "planned":
        yield format_plan(host.plan, width)
        return
    message = f": {host.message}" if host.message else ""
    yield cleaned(f"{host.host}: {WORDS[host.state]}{message}")
    for tried in host.tries:
        yield from labelled(tried.act, f"{tried.at}, {tried.seconds:g} s: {tried.result}", width)
    for finding in host.left if host.state in ("given up", "refused", "not started", "differs", "interrupted") else ():
        yield from labelled("because", f"{finding.check}: {finding.found}", width)
    yield from labelled("out", host.out, width)
    yield from labelled("do", host.fix, width)
    for path in host.ticket:
        yield from labelled("ticket", path, width, whole=True)


def format_summary(run: Repaired) -> str:
    """Format the summary: `3 hosts: 2 repaired, 1 given up`."""
    counts = [(state, sum(host.state == state for host in run.hosts)) for state in WORDS]
    parts = ", ".join(f"{number} {state}" for state, number in counts if number)
    stopped = f"; stopped: {run.stopped}" if run.stopped else ""
    return f"{counted(len(run.hosts), 'host')}: {parts or 'nothing judged'}{stopped}"
