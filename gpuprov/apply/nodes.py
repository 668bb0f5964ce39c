"""`--drain kubernetes`: nodes go back into service once verify has called their hosts green, also what an earlier apply has left.

Whoever has a host's lock has its node, so that it is taken up, and given back, under the lock alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from gpuprov import reading
from gpuprov.apply.aftermath import LIMIT, composed, leave
from gpuprov.apply.model import HostOutcome, Known
from gpuprov.drain import in_play, noted
from gpuprov.drain.in_play import Asked
from gpuprov.drain.many import AT_ONCE
from gpuprov.errors import GpuprovError, UnreachableError
from gpuprov.gather.script import split
from gpuprov.gather.transport import run
from gpuprov.plan.extra import of_rollback
from gpuprov.plan.host_lock import command
from gpuprov.probe.base import Output
from gpuprov.spec.model import RawHost
from gpuprov.verify.evaluate import IN_SERVICE

TRIES = 3
"""How often a host is asked for its lock, while no answer comes, in LIMIT seconds."""
Say = Callable[[str], None]
Told = tuple[str, str]
"""What became of a node: that it is in service again; or why it stays out."""


def give_back(
    asked: Asked,
    hosts: Sequence[RawHost],
    outcomes: Mapping[str, HostOutcome],
    owner: Mapping[str, object],
    say: Say,
    known: Known,
) -> None:
    """Give back the nodes of hosts that are green; of others, say that they stay out, and how they come back. `known` is told of each
    host when that is done: one that was noted as done before would not be looked at again by who goes on after this is killed.
    """

    def one(raw: RawHost) -> Told:
        try:
            return _given_back(asked, raw, owner, green=outcomes[raw.name].green)
        except GpuprovError as error:
            return "", f"{error.message}. Fix: {error.hint}"

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for raw, (back, stays) in zip(hosts, pool.map(one, hosts), strict=True):
            if back:
                outcomes[raw.name].results = [one for one in outcomes[raw.name].results if one.check != IN_SERVICE]
                say(f"{raw.name}: {back}")
            outcomes[raw.name].hint = "; ".join(filter(None, (outcomes[raw.name].hint, stays)))
            known(outcomes[raw.name])


def node_of(raw: RawHost) -> str:
    """The node, as the inventory names it, and never as the host does."""
    return str(raw.connection.get("host_kubernetes_node") or raw.name)


def told_anew(outcome: HostOutcome, raw: RawHost, run: str, back: HostOutcome) -> None:
    """After the rollback of a run's host: what was said of its node holds no more where the node is in service again, or is now the
    rollback's."""
    before, after = in_play.stays(node_of(raw), run), in_play.stays(node_of(raw), of_rollback(run))
    if after in back.hint:
        outcome.hint = outcome.hint.replace(before, after)
    elif back.green and not back.hint:
        outcome.hint = outcome.hint.replace(before, "").strip("; ")


def _given_back(asked: Asked, raw: RawHost, owner: Mapping[str, object], *, green: bool) -> Told:
    node, mine = node_of(raw), str(owner["run"])
    whose = in_play.left(asked, node, mine)
    if not whose:
        return "", ""
    if not green:
        return "", in_play.stays(node, whose)
    if not _locked(raw, owner):
        return "", f"node {node} stays out: the lock of its host cannot be had. {in_play.later(whose)}"
    try:
        if whose != mine:
            in_play.take_over(asked, node, mine)
        changed, why = in_play.give_back(asked, node, mine, green=True)
        with suppress(UnreachableError):  # then it says so until the next time
            if changed:
                run(raw, composed(noted.gone(), LIMIT), LIMIT)
    finally:
        leave([raw], owner)
    by = "" if whose == mine else f", which run {whose} has left,"
    return (f"node {node}{by} is in service again" if changed else ""), why


def _locked(raw: RawHost, owner: Mapping[str, object]) -> bool:
    """Whether the lock of the host is this run's now. Where the answer was lost, it may be all the same: who has it gets it again."""
    end = time.monotonic() + LIMIT  # of all tries together: a host that has vanished answers none
    for _ in range(TRIES):
        if (rest := end - time.monotonic()) <= 0:
            break
        try:
            told = run(raw, composed(command("take", owner, raw.name), LIMIT), rest)
            answer = reading.json((split(told.encode()) or {}).get("leave", Output("")).text)
        except (UnreachableError, ValueError):
            continue
        if isinstance(answer, Mapping) and isinstance(answer.get("taken"), bool):
            return bool(answer["taken"])
    leave([raw], owner)
    return False
