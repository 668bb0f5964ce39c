"""A rehearsal as results, which the reports take: each act is one, so that a rehearsal that failed is not a page about nothing."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from gpuprov.rehearse.model import ACTS, Rehearsal, Rehearsed, Verdict
from gpuprov.verify.evaluate import Result, ResultStatus

CAPABILITY = "rehearsal"
STATUS: dict[Verdict, ResultStatus] = {
    "ok": "pass",
    "waiting": "pass",
    "differs": "fail",
    "failed": "fail",
    "unreachable": "unreachable",
    "not done": "skip",
}


def results(whole: Rehearsed) -> list[Result]:
    """The acts of every simulated host, then what the last verify found there; what is waived is skipped, with the reason."""
    return [row for one in whole.rehearsals for row in (*_acts(one), *_verified(one))]


def _acts(one: Rehearsal) -> Iterator[Result]:
    if one.problem:
        yield _result(one, "possible", "error", "the hosts can be simulated", one.problem, one.hint)
        return
    stopped = next((step for step in one.steps if step.verdict in ("failed", "unreachable")), None)
    for act in ACTS:
        step = one.step(act)
        if step is not None:
            told = "\n".join(filter(None, (step.told, *step.details)))
            yield _result(one, act, STATUS[step.verdict], f"{act} succeeds", told)
        elif stopped is not None:
            yield _result(one, act, "skip", "", f"unknown: not done, because this ended the rehearsal: {stopped.name}")
        else:
            yield _result(
                one,
                act,
                "error",
                f"{act} is done",
                "unknown: the rehearsal was interrupted before",
                "rehearse it again",
            )


def _verified(one: Rehearsal) -> Iterator[Result]:
    waived = {(row.host, row.check): row.reason for row in one.judged.waived} if one.judged else {}
    for row in one.results:
        reason = waived.get((row.host, row.check))
        if reason:
            yield msgspec.structs.replace(row, status="skip", found=f"{row.found}; waived: {reason}")
        else:
            yield row


def _result(one: Rehearsal, act: str, status: ResultStatus, expected: str, found: str, hint: str = "") -> Result:
    check = f"{CAPABILITY}.{act.replace(' ', '_')}"
    return Result(
        host=one.name, capability=CAPABILITY, check=check, status=status, expected=expected, found=found, hint=hint
    )
