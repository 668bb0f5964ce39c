"""The rollback of hosts that an apply has left red, if their spec has `on_failure: rollback`."""

from collections.abc import Sequence
from typing import Unpack

import msgspec

from gpuprov.apply import execution, nodes, rollback
from gpuprov.apply.items import taken_back
from gpuprov.apply.model import DONE, ApplyRun, HostOutcome, Options
from gpuprov.inventory.names import fold_names as names
from gpuprov.plan.extra import of_rollback
from gpuprov.plan.interrupt import GRACE
from gpuprov.plan.read import Pair
from gpuprov.plan.show import Show


def apply(
    pairs: Sequence[Pair],
    options: Options,
    show: Show | None = None,
    *,
    grace: float = GRACE,
    **callbacks: Unpack[execution.Callbacks],
) -> ApplyRun:
    """Apply as `execution.apply` does; then roll back red hosts that it changed to their last checkpoint, if their spec
    says so.

    Their outcomes stay the same, with `rolled_back`: the run is no success.
    """
    run = execution.apply(pairs, options, show, grace=grace, **callbacks)
    asking = {raw.name for raw, spec in pairs if spec.on_failure == "rollback"}
    red = {host.host: host for host in run.hosts if host.host in asking and _is_red(host)}
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
    for host in ended.hosts:
        red[host.host].rolled_back = _describe_rollback(host)
        red[host.host].undone = host.state in DONE and not host.reboot
        red[host.host].items = taken_back(red[host.host].items, host.items, red[host.host].rolled_back)
        nodes.update_message(red[host.host], by_name[host.host], run.run, host)
    return msgspec.structs.replace(run, interrupted=ended.interrupted, seconds=run.seconds + ended.seconds)


def _is_red(host_outcome: HostOutcome) -> bool:
    """Return whether the run has changed the host, and left it different from its spec. A host that waits for a reboot
    cannot be judged."""
    begun = bool(host_outcome.changed) and host_outcome.state in ("changed", "failed")
    return begun and (host_outcome.state == "failed" or bool(host_outcome.wrong and not host_outcome.reboot))


def _describe_rollback(host_outcome: HostOutcome) -> str:
    if host_outcome.state not in DONE:
        return (
            f"not rolled back: {host_outcome.state}: "
            f"{': '.join(filter(None, (host_outcome.task, host_outcome.message)))}"
        )
    failing = ", ".join(each.check for each in host_outcome.failing)
    if host_outcome.reboot:
        return f"{host_outcome.rolled_back}, and waits for a reboot: {'; '.join(host_outcome.reboot)}"
    return f"{host_outcome.rolled_back}; {f'verify is not green: {failing}' if failing else 'verify is green'}"
