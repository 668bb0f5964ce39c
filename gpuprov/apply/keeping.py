"""Checkpoints of hosts that are fully green before or after an apply."""

from collections.abc import Callable, Mapping, Sequence

from gpuprov import checkpoints
from gpuprov.apply.model import HostOutcome
from gpuprov.facts.collect.rounds import Pace
from gpuprov.host_code.fence import Owner
from gpuprov.inventory.names import fold_names as names
from gpuprov.plan.read import Pair, Reading


def keep(
    pairs: Sequence[Pair],
    outcomes: Mapping[str, HostOutcome],
    readings: Mapping[str, Reading],
    owner: Owner,
    pace: Pace,
    say: Callable[[str], None],
) -> None:
    """Have green hosts keep a checkpoint if their last one differs."""
    due = [
        pair
        for pair in pairs
        if outcomes[pair[0].name].green
        and (outcomes[pair[0].name].ran or not checkpoints.is_kept(readings[pair[0].name]))
    ]
    if not due:
        return
    say(f"keeping a checkpoint on {names([raw.name for raw, _ in due])}")
    for name, problem in checkpoints.keep(due, owner, pace).items():
        say(f"{name}: no checkpoint was kept, so that rollback goes to an earlier one: {problem}")
