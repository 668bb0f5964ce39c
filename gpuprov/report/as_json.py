"""The document of `gpuprov verify`: a verdict, counts, causes, each host with its next boot, and a flat row for every
result."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from gpuprov.capabilities.base import Moment
from gpuprov.core.errors import Outcome
from gpuprov.core.fill import fill
from gpuprov.core.safe_parse import format_document
from gpuprov.report.document import Document, HostDocument, Seconds, Summary, conclude, sum_up
from gpuprov.report.fold import findings, host_lines, racks_of, summed
from gpuprov.report.folded import LOUD, Summed
from gpuprov.report.many import Many
from gpuprov.report.text import format_summary
from gpuprov.verify.evaluate import Result, ResultStatus
from gpuprov.verify.racks import Rack
from gpuprov.verify.verify import VERDICTS, Verdict, judge_hosts, verdict


class VerifiedRow(msgspec.Struct, kw_only=True):
    """The result of one check on one host. `evidence`: the command that shows it; `follows`: the failing check
    of the host without which this one would not have failed."""

    host: str
    capability: str
    check: str
    fields: tuple[str, ...]
    status: ResultStatus
    expected: str
    found: str
    evidence: str
    fix: str
    moment: Moment
    follows: str


class RootCause(msgspec.Struct, kw_only=True):
    """A failure that is not caused by another one, those of most hosts first; `followers`: checks that failed only
    because of it."""

    check: str
    status: ResultStatus
    found: str
    hosts: tuple[str, ...]
    followers: tuple[str, ...]


class Boot(msgspec.Struct, kw_only=True):
    """Prediction of the host's next boot: whether it will match its spec, and why not, or why that is unknown."""

    verdict: Literal["right", "wrong", "unknown"]
    reasons: tuple[str, ...]


class VerifiedHost(HostDocument, frozen=True, kw_only=True):
    """`counts`: results by status; `follow` are failures caused by another. `seconds`: to read it; null from a
    record."""

    verdict: Verdict
    counts: dict[str, int]
    next_boot: Boot
    seconds: Seconds | None


class VerifiedSummary(Summary, kw_only=True):
    """`checks`: results by status, without failures caused by another (`follow`). `not_proven` were skipped."""

    hosts_not_as_wanted: int
    checks: dict[str, int]
    follow: int
    not_proven: int


class Verified(Document, kw_only=True, tag="verify"):
    """The document that `gpuprov verify --json` prints. It includes n/a results with -v only."""

    verdict: Verdict
    summary: VerifiedSummary
    causes: tuple[RootCause, ...]
    racks: tuple[Rack, ...]
    hosts: tuple[VerifiedHost, ...]
    results: tuple[VerifiedRow, ...]


def causes(results: Iterable[Result] | Many) -> tuple[RootCause, ...]:
    """Return the failures, each with the failures that it caused."""
    return tuple(
        fill(
            RootCause,
            finding.result,
            hosts=finding.hosts,
            followers=tuple(follower.check for follower in finding.followers),
        )
        for finding in findings(results, LOUD)
    )


def build_document(
    results: Sequence[Result],
    took: Mapping[str, float] | None = None,
    seconds: float | None = None,
    *,
    verbose: bool = False,
    rows: bool = True,
) -> Verified:
    """Return the document. `took`: seconds by host; `seconds`: in total. `rows`: with the results."""
    outcomes = judge_hosts(results)
    return conclude(
        Verified,
        None,
        outcomes.values(),
        seconds,
        verdict=verdict(results),
        summary=summarize(summed(results), outcomes.values()),
        causes=causes(results),
        racks=tuple(racks_of(results)),
        hosts=tuple(
            VerifiedHost(
                host=line.hosts[0],
                outcome=outcomes[line.hosts[0]],
                verdict=VERDICTS.get(outcomes[line.hosts[0]], "differs"),
                counts=line.counts,
                next_boot=fill(Boot, line.next_boot),
                seconds=round(took[line.hosts[0]], 3) if took and line.hosts[0] in took else None,
            )
            for line in host_lines(results, fold=False)
        ),
        results=tuple(_list_rows(results if rows else (), verbose=verbose)),
    )


def summarize(numbers: Summed, outcomes: Collection[Outcome]) -> VerifiedSummary:
    """Return the summary."""
    return sum_up(
        VerifiedSummary,
        format_summary(numbers),
        outcomes,
        hosts_not_as_wanted=numbers.bad,
        checks={str(status): number for status, number in numbers.counts.items()},
        follow=numbers.follow,
        not_proven=numbers.counts["skip"],
    )


def _list_rows(results: Iterable[Result], *, verbose: bool) -> Iterator[VerifiedRow]:
    return (fill(VerifiedRow, result) for result in results if verbose or result.status != "n/a")


# Number of results written at a time.
AT_ONCE = 2000


def parts(
    results: Sequence[Result],
    took: Mapping[str, float] | None = None,
    seconds: float | None = None,
    *,
    verbose: bool = False,
) -> Iterator[str]:
    """Yield the document as text, some lines at a time: the results of a fleet are never in memory as text."""
    shown = [result for result in results if verbose or result.status != "n/a"]
    if len(shown) <= AT_ONCE:
        yield format_document(build_document(results, took, seconds, verbose=verbose))
        return
    head, _, end = format_document(build_document(results, took, seconds, verbose=verbose, rows=False)).rpartition("[]")
    yield f"{head}["
    for start in range(0, len(shown), AT_ONCE):
        # By "\n" alone: what a host says may hold U+2028 and its like, as they are.
        lines = format_document([*_list_rows(shown[start : start + AT_ONCE], verbose=True)]).split("\n")[1:-1]
        yield "\n".join(f"  {line}" for line in lines) + ("," if start + AT_ONCE < len(shown) else "")
    yield f"  ]{end}"
