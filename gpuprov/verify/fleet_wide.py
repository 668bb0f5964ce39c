"""Judgements that need all hosts of a run: the results of hosts that were judged one by one, completed."""

from collections.abc import Sequence

import msgspec

from gpuprov.capabilities.base import Outcome
from gpuprov.capabilities.health.firmware import BASELINE, judge_fleet
from gpuprov.verify.evaluate import Result, ResultStatus
from gpuprov.verify.racks import share_recovery

WORST: tuple[ResultStatus, ...] = ("fail", "skip", "pass", "n/a")


def compare_hosts(results: Sequence[Result]) -> list[Result]:
    """Return the results, with the firmware of each host compared with that of the others; what hosts of one rack ask
    for together is said of the rack."""
    rows = [result for result in results if result.check == BASELINE and result.firmware]
    outcomes = judge_fleet({row.host: row.firmware for row in rows}, {row.host: row.machine for row in rows})
    return [
        complete(result, outcomes[result.host]) if result.check == BASELINE and result.host in outcomes else result
        for result in share_recovery(results)
    ]


def complete(result: Result, outcome: Outcome) -> Result:
    """Return the worse of a host's own result and of the outcome of the comparison; equally bad ones are one result.
    What passes is reported beside what is not proven."""
    own, other = WORST.index(result.status), WORST.index(outcome.status)
    result = msgspec.structs.replace(result, firmware=(), machine="")
    if own < other:
        beside = f"; {outcome.found}" if result.status == "skip" else ""
        return msgspec.structs.replace(result, found=f"{result.found}{beside}")
    same = own == other
    return msgspec.structs.replace(
        result,
        status=outcome.status,
        action=outcome.action,
        expected="; ".join(filter(None, (result.expected * same, outcome.expected))),
        found="; ".join(filter(None, (result.found * same, outcome.found))),
        hint="; ".join(dict.fromkeys(filter(None, (result.hint * same, outcome.hint)))),
    )
