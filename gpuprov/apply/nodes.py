"""`--drain kubernetes`: nodes return to service once verify has found their hosts green, including nodes left by an
earlier apply.

The holder of a host's lock has its node, so that it is taken over and given back under the lock alone.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from gpuprov.apply.aftermath import LIMIT, composed, leave
from gpuprov.apply.model import HostOutcome, Known
from gpuprov.core import safe_parse
from gpuprov.core.errors import GpuprovError, UnreachableError
from gpuprov.facts.collect.script import split
from gpuprov.facts.collect.transport import run
from gpuprov.facts.probes.base import Output
from gpuprov.fleet.drain import in_play, noted
from gpuprov.fleet.drain.in_play import Asked
from gpuprov.fleet.drain.many import AT_ONCE
from gpuprov.host_code.fence import Owner
from gpuprov.plan.extra import of_rollback
from gpuprov.plan.host_lock import command
from gpuprov.spec.model import RawHost
from gpuprov.verify.evaluate import IN_SERVICE

# Attempts to get a host's lock, in LIMIT seconds, if no answer comes.
TRIES = 3
Say = Callable[[str], None]
# The outcome of a node: that it is in service again; or why it stays out.
Told = tuple[str, str]


def give_back(
    options: Asked,
    hosts: Sequence[RawHost],
    outcomes: Mapping[str, HostOutcome],
    owner: Owner,
    say: Say,
    known: Known,
) -> None:
    """Return the nodes of green hosts to service; for others, report that they stay out and how to return them. `known`
    is called for each host when this is done: if it were called before, a process that continues after a kill would
    skip the host."""

    def give_back(raw: RawHost) -> Told:
        try:
            return _give_back(options, raw, owner, green=outcomes[raw.name].green)
        except GpuprovError as error:
            return "", f"{error.message}. Fix: {error.fix}"

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for raw, (back, stays) in zip(hosts, pool.map(give_back, hosts), strict=True):
            if back:
                outcomes[raw.name].results = [
                    result for result in outcomes[raw.name].results if result.check != IN_SERVICE
                ]
                say(f"{raw.name}: {back}")
            outcomes[raw.name].fix = "; ".join(filter(None, (outcomes[raw.name].fix, stays)))
            known(outcomes[raw.name])


def node_of(raw: RawHost) -> str:
    """Return the node's name in the inventory, never the name that the host reports."""
    return str(raw.connection.get("host_kubernetes_node") or raw.name)


def update_message(outcome: HostOutcome, raw: RawHost, run: str, back: HostOutcome) -> None:
    """Update the message about a node after its run was rolled back, if the node is in service again or now belongs to
    the rollback."""
    before, after = in_play.stays(node_of(raw), run), in_play.stays(node_of(raw), of_rollback(run))
    if after in back.fix:
        outcome.fix = outcome.fix.replace(before, after)
    elif back.green and not back.fix:
        outcome.fix = outcome.fix.replace(before, "").strip("; ")


def _give_back(options: Asked, raw: RawHost, owner: Owner, *, green: bool) -> Told:
    node, own_run = node_of(raw), str(owner["run"])
    whose = in_play.left(options, node, own_run)
    if not whose:
        return "", ""
    if not green:
        return "", in_play.stays(node, whose)
    if not _has_lock(raw, owner):
        return "", f"node {node} stays out: the lock of its host cannot be had. {in_play.later(whose)}"
    try:
        if whose != own_run:
            in_play.take_over(options, node, own_run)
        changed, why = in_play.give_back(options, node, own_run, green=True)
        with suppress(UnreachableError):  # then it says so until the next time
            if changed:
                run(raw, composed(noted.gone(), LIMIT), LIMIT)
    finally:
        leave([raw], owner)
    by = "" if whose == own_run else f", which run {whose} has left,"
    return (f"node {node}{by} is in service again" if changed else ""), why


def _has_lock(raw: RawHost, owner: Owner) -> bool:
    """Return whether this run has the host's lock now. If the answer was lost, it may still have it: the holder gets it
    again."""
    end = time.monotonic() + LIMIT  # of all tries together: a host that has vanished answers none
    for _ in range(TRIES):
        if (rest := end - time.monotonic()) <= 0:
            break
        try:
            stdout = run(raw, composed(command("take", owner, raw.name), LIMIT), rest)
            answer = safe_parse.parse_json((split(stdout.encode()) or {}).get("leave", Output("")).text)
        except (UnreachableError, ValueError):
            continue
        if isinstance(answer, Mapping) and isinstance(answer.get("taken"), bool):
            return bool(answer["taken"])
    leave([raw], owner)
    return False
