"""Converts a host's outcome of verify, plan and apply to its result."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from gpuprov.apply.model import DONE, HostOutcome
from gpuprov.jobs.model import Act, Boot, Compared, HostResult, Row
from gpuprov.plan.model import HostPlan
from gpuprov.report.fold import host_lines
from gpuprov.verify.evaluate import FAILING, IN_SERVICE, Result
from gpuprov.verify.verify import REACHABLE, verdict

# The check that represents the act itself, if it did not succeed.
ENDED = "host.act"


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """Common fields of all results of one piece of work."""

    run: str
    job: str
    fleet: str
    act: Act
    started: str

    def result(self, host: str, **more: Any) -> HostResult:
        """Return the result of a host that has just ended."""
        return HostResult(**msgspec.structs.asdict(self), host=host, ended=now(), **more)


def now() -> str:
    """Return the time in UTC, to the millisecond, in a form whose text order is the time order."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def of_verify(common: Told, host: str, results: Sequence[Result], seconds: float = 0.0) -> HostResult:
    """Convert its results of verify."""
    lost = next((result for result in results if result.status == "unreachable"), None)
    more = {"state": "unreachable", "message": lost.found, "fix": lost.fix} if lost else {"state": "verified"}
    return common.result(host, **more, **_judge_rows(results, common.run), seconds=round(seconds, 3))


def of_apply(common: Told, outcome: HostOutcome) -> HostResult:
    """Convert its outcome of apply. A host that was not done has a failure that says so, before those of verify. For a
    host that was only prepared, what is still missing is not a failure, and proves nothing."""
    judged = {} if outcome.state == "prepared" else _judge_rows(outcome.verified, common.run)
    if outcome.state not in DONE:
        place = f"{outcome.task}: " if outcome.task else ""
        judged["failures"] = (
            _make_end_row(outcome.state, f"{place}{outcome.message}", outcome.advice),
            *judged["failures"],
        )
        judged |= {"verdict": "differs", "counts": _add_one(judged["counts"], judged["failures"][0].status)}
    return common.result(
        outcome.host,
        state=outcome.state,
        **judged,
        reboot=tuple(outcome.reboot),
        message=outcome.message,
        fix=outcome.advice,
        seconds=round(outcome.seconds, 3),
    )


def of_plan(common: Told, plan: HostPlan) -> HostResult:
    """Convert its plan: what would be applied is the failure that apply fixes; what blocks it is kept unchanged."""
    if plan.unreachable:
        row = _make_end_row("unreachable", plan.unreachable, "")
        return common.result(
            plan.host,
            state="unreachable",
            verdict="differs",
            counts={"unreachable": 1},
            failures=(row,),
            message=plan.unreachable,
        )
    rows = [Row.of(result) for result in (*plan.blocked, *plan.unmended)]
    message = "; ".join(f"{name}: {why}" for name, why in plan.run.items())
    if plan.run:
        fix = "gpuprov fleet work --act apply does it"
        rows.append(Row(check=ENDED, status="fail", expected="nothing to apply", found=f"to apply: {message}", fix=fix))
    good = plan.idle and not plan.differs and not rows
    return common.result(
        plan.host,
        state="planned",
        verdict="matches" if good else "differs",
        counts=_count_states(rows),
        failures=tuple(rows),
        reboot=plan.reboot_reasons,
        message=message,
    )


def _make_end_row(state: str, message: str, fix: str) -> Row:
    if state == "unreachable":
        return Row(check=REACHABLE, status="unreachable", expected="the host answers", found=message, fix=fix)
    detail = f"{state}: {message}" if message else state
    return Row(check=ENDED, status="error", expected="the act ends well", found=detail, fix=fix)


def _judge_rows(judged: Sequence[Result], run: str) -> dict[str, Any]:
    """Return counts, verdict, next boot, and the rows that are stored in full. A drain by this run itself, which
    returns the host afterwards, does not count as unfinished."""
    results = [result for result in judged if result.check != IN_SERVICE or not result.fix.endswith(f" --run {run}")]
    if not results:
        return {"failures": (), "counts": {}}
    (line,) = host_lines(results, fold=False)
    compared = next((result for result in results if result.firmware), None)
    return {
        "compared": compared and Compared(row=Row.of(compared), firmware=compared.firmware, machine=compared.machine),
        "nvlink_errors": tuple(error for result in results for error in result.nvlink_errors),
        "verdict": verdict(results),
        "counts": line.counts,
        "failures": tuple(Row.of(result) for result in results if result.status in (*FAILING, "unreachable")),
        "unproven": tuple(Row.of(result) for result in results if result.status == "skip"),
        "next_boot": Boot(verdict=line.next_boot.verdict, reasons=line.next_boot.reasons),
    }


def _count_states(rows: Sequence[Row]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for row in rows:
        counts = _add_one(counts, row.status)
    return counts


def _add_one(counts: Mapping[str, int], status: str) -> dict[str, int]:
    return {**counts, status: counts.get(status, 0) + 1}
