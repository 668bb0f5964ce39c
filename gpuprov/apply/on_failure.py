"""The rollback of hosts that an apply has left red, if their spec has `on_failure: rollback`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from gpuprov.apply import execution, nodes, rollback
from gpuprov.apply.execution import Agreed
from gpuprov.apply.items import taken_back
from gpuprov.apply.model import DONE, ApplyRun, HostOutcome, Known, Options
from gpuprov.inventory.names import fold_names as names
from gpuprov.plan.extra import of_rollback
from gpuprov.plan.interrupt import GRACE
from gpuprov.plan.model import HostPlan
from gpuprov.plan.read import Pair
from gpuprov.plan.show import Show


def apply(
    pairs: Sequence[Pair],
    options: Options,
    show: Show | None = None,
    *,
    confirm: Callable[[list[HostPlan]], bool] | None = None,
    agreed: Agreed | None = None,
    known: Known | None = None,
    grace: float = GRACE,
) -> ApplyRun:
    """Apply as `execution.apply` does; then roll back red hosts that it changed to their last checkpoint, if their spec says so.

    Their outcomes stay the same, with `rolled_back`: the run is no success.
    """
    run = execution.apply(pairs, options, show, confirm=confirm, agreed=agreed, known=known, grace=grace)
    asking = {raw.name for raw, spec in pairs if spec.on_failure == "rollback"}
    red = {one.host: one for one in run.hosts if one.host in asking and _is_red(one)}
    if not red or options.act != "apply" or run.interrupted:
        return run
    shown = show or Show()
    shown.say(f"on_failure: rolling back {names(red)}")
    plain = msgspec.structs.replace(
        options, yes=True, run=of_rollback(run.run), serial="", canary="", max_fail="100%", break_lock=()
    )
    hosts = [raw for raw, _ in pairs if raw.name in red]
    by_name = {raw.name: raw for raw in hosts}
    ended = rollback.rollback(hosts, plain, shown, last=True)
    rollback.acknowledge(hosts, ended, options.forks)
    for one in ended.hosts:
        red[one.host].rolled_back, red[one.host].undone = _told(one), one.state in DONE and not one.reboot
        red[one.host].items = taken_back(red[one.host].items, one.items, red[one.host].rolled_back)
        nodes.told_anew(red[one.host], by_name[one.host], run.run, one)
    return msgspec.structs.replace(run, interrupted=ended.interrupted, seconds=run.seconds + ended.seconds)


def _is_red(one: HostOutcome) -> bool:
    """Return whether the run has changed the host, and left it different from its spec. A host that waits for a reboot cannot be
    judged."""
    begun = bool(one.changed) and one.state in ("changed", "failed")
    return begun and (one.state == "failed" or bool(one.wrong and not one.reboot))


def _told(one: HostOutcome) -> str:
    if one.state not in DONE:
        return f"not rolled back: {one.state}: {': '.join(filter(None, (one.task, one.message)))}"
    failing = ", ".join(each.check for each in one.failing)
    if one.reboot:
        return f"{one.rolled_back}, and waits for a reboot: {'; '.join(one.reboot)}"
    return f"{one.rolled_back}; {f'verify is not green: {failing}' if failing else 'verify is green'}"
