"""A rehearsal as results, which the reports take: each act is one, so that a rehearsal that failed is not a page about
nothing."""

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


def list_results(whole: Rehearsed) -> list[Result]:
    """List what was left out and the acts of every simulated host, then the results of the last verify on it; waived
    ones are skipped, with the reason."""
    return [row for rehearsal in whole.rehearsals for row in (*list_acts(rehearsal), *list_verified(rehearsal))]


def list_acts(rehearsal: Rehearsal) -> Iterator[Result]:
    if rehearsal.problem:
        yield build_result(
            rehearsal, "possible", "error", "the hosts can be simulated", rehearsal.problem, rehearsal.fix
        )
        return
    if rehearsal.left_out:
        yield build_result(rehearsal, "left out", "skip", "", f"not rehearsed: {'; '.join(rehearsal.left_out)}")
    stopped = next((step for step in rehearsal.steps if step.verdict in ("failed", "unreachable")), None)
    for act in ACTS:
        step = rehearsal.step(act)
        if step is not None:
            text = "\n".join(filter(None, (step.told, *step.details)))
            yield build_result(rehearsal, act, STATUS[step.verdict], f"{act} succeeds", text)
        elif stopped is not None:
            yield build_result(
                rehearsal, act, "skip", "", f"unknown: not done, because this ended the rehearsal: {stopped.name}"
            )
        else:
            yield build_result(
                rehearsal,
                act,
                "error",
                f"{act} is done",
                "unknown: the rehearsal was interrupted before",
                "rehearse it again",
            )


def list_verified(rehearsal: Rehearsal) -> Iterator[Result]:
    waived = {(row.host, row.check): row.reason for row in rehearsal.judged.waived} if rehearsal.judged else {}
    for row in rehearsal.results:
        reason = waived.get((row.host, row.check))
        if reason:
            yield msgspec.structs.replace(row, status="skip", found=f"{row.found}; waived: {reason}")
        else:
            yield row


def build_result(
    rehearsal: Rehearsal, act: str, status: ResultStatus, expected: str, actual: str, fix: str = ""
) -> Result:
    check = f"{CAPABILITY}.{act.replace(' ', '_')}"
    return Result(
        host=rehearsal.name,
        capability=CAPABILITY,
        check=check,
        status=status,
        expected=expected,
        found=actual,
        fix=fix,
    )
