"""A roll-out whose files cannot be used: the conclusions from its events alone. Pure functions."""

from collections.abc import Iterator, Sequence

from gpuprov.core.errors import CODES
from gpuprov.fleet.policy import events as kinds
from gpuprov.fleet.policy.events import Event
from gpuprov.inventory.names import fold_names as names
from gpuprov.rollout.kept import Kept
from gpuprov.rollout.status import Standing, Status, moment


def over(events: Sequence[Event]) -> Standing | None:
    """Return how it has ended; None if it has not."""
    if not any(isinstance(event, kinds.Finished) for event in events):
        return None
    return "aborted" if any(isinstance(event, kinds.Aborted) for event in events) else "finished"


def find_status(kept: Kept, events: Sequence[Event]) -> Status | None:
    """Return the status of an aborted roll-out; None if an engine is still completing it."""
    stands = over(events)
    if stands is None:
        return None
    last = next((event for event in reversed(events) if isinstance(event, kinds.Aborted)), None)
    why = f"by {last.by}" + (f": {last.why}" if last.why else "") if last else ""
    begun = moment(kept.begun)
    return Status(
        id=kept.id, state=stands, why=why, fleet=kept.fleet, by=kept.by, begun=begun, exit_code=CODES["failed"]
    )


def left(rollout: str, events: Sequence[Event]) -> Iterator[tuple[str, str]]:
    """Yield what no process will complete any more, and what to do about it."""
    out: dict[str, None] = {}
    busy: dict[str, None] = {}
    for event in events:
        match event:
            case kinds.Draining(hosts=hosts):
                out |= dict.fromkeys(hosts)
            case kinds.Returned(hosts=hosts):
                out = {name: None for name in out if name not in hosts}
            case kinds.Working(act="apply", hosts=hosts):
                busy |= dict.fromkeys(hosts)
            case kinds.Done(hosts=ends):
                busy = {name: None for name in busy if name not in {end.host for end in ends}}
            case _:
                pass
    if busy:
        yield f"{names(busy)}: it was at work there, and its result is not known", "look at them: gpuprov verify"
    if out:
        message = f"{names(out)}: drained by it, and not given back"
        yield message, f"gpuprov undrain {next(iter(out))} INVENTORY --by SCHEDULER --run {rollout}"
