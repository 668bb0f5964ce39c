"""Results as one JSON document: a verdict, counts, causes, each host with its next boot, and a flat row for every result.

docs/reference/verify.schema.json is made from these types.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Literal

import msgspec

from gpuprov import __version__
from gpuprov.capabilities.base import Moment
from gpuprov.errors import Code
from gpuprov.reading import format_document
from gpuprov.report.fold import findings, host_lines, totals
from gpuprov.report.many import Many
from gpuprov.verify.evaluate import Result, ResultStatus
from gpuprov.verify.verify import Verdict, exit_code, verdict

FORMAT = 1
KEYS = ("host", "capability", "check", "fields", "status", "expected", "found", "evidence", "hint", "moment", "follows")


class Row(msgspec.Struct, kw_only=True):
    """The result of one check on one host. `evidence`: the command that shows it; `hint`: the fix; `follows`: the failing check of the
    host without which this one would not have failed."""

    host: str
    capability: str
    check: str
    fields: tuple[str, ...]
    status: ResultStatus
    expected: str
    found: str
    evidence: str
    hint: str
    moment: Moment
    follows: str


class Cause(msgspec.Struct, kw_only=True):
    """A failure that is not caused by another one, those of most hosts first; `followers`: checks that failed only because of it."""

    check: str
    status: ResultStatus
    found: str
    hosts: tuple[str, ...]
    followers: tuple[str, ...]


class Boot(msgspec.Struct, kw_only=True):
    """Prediction of the host's next boot: whether it will match its spec, and why not, or why that is unknown."""

    verdict: Literal["right", "wrong", "unknown"]
    reasons: tuple[str, ...]


class Host(msgspec.Struct, kw_only=True):
    """`counts`: results by status; `follow` are failures caused by another. `seconds`: to read it; null from a record."""

    host: str
    verdict: Verdict
    counts: dict[str, int]
    next_boot: Boot
    seconds: Annotated[float, msgspec.Meta(ge=0)] | None


class Summary(msgspec.Struct, kw_only=True):
    """`checks`: results by status, without failures caused by another (`follow`). `not_proven` were skipped."""

    hosts: int
    hosts_not_as_wanted: int
    checks: dict[str, int]
    follow: int
    not_proven: int


class Report(msgspec.Struct, kw_only=True):
    """The document that `gpuprov verify --json` prints. It includes n/a results with -v only."""

    gpuprov_verify: Annotated[int, msgspec.Meta(description="Version of this format")] = FORMAT
    gpuprov: str
    verdict: Verdict
    exit_code: Code
    seconds: Annotated[float, msgspec.Meta(ge=0)] | None
    summary: Summary
    causes: tuple[Cause, ...]
    hosts: tuple[Host, ...]
    results: tuple[Row, ...]


def causes(results: Iterable[Result] | Many) -> tuple[Cause, ...]:
    """Return the failures, each with the failures that it caused."""
    return tuple(
        Cause(
            check=one.result.check,
            status=one.result.status,
            found=one.result.found,
            hosts=one.hosts,
            followers=tuple(follower.check for follower in one.followers),
        )
        for one in findings(results, ("unreachable", "fail", "error"))
    )


def report(
    results: Sequence[Result],
    took: Mapping[str, float] | None = None,
    seconds: float | None = None,
    *,
    verbose: bool = False,
    rows: bool = True,
) -> Report:
    """Return the document. `took`: seconds by host; `seconds`: in total. `rows`: with the results."""
    bad = {one.host for one in results if one.status in ("unreachable", "fail", "error")}
    counted = totals(results)
    of_host: dict[str, list[Result]] = {}
    for one in results:
        of_host.setdefault(one.host, []).append(one)
    return Report(
        gpuprov=__version__,
        verdict=verdict(results),
        exit_code=exit_code(results),
        seconds=None if seconds is None else round(seconds, 3),
        summary=Summary(
            hosts=len(of_host),
            hosts_not_as_wanted=len(bad),
            checks={str(status): number for status, number in counted.items()},
            follow=sum(bool(one.follows) for one in results),
            not_proven=counted["skip"],
        ),
        causes=causes(results),
        hosts=tuple(
            Host(
                host=line.hosts[0],
                verdict=verdict(of_host[line.hosts[0]]),
                counts=line.counts,
                next_boot=Boot(verdict=line.next_boot.verdict, reasons=line.next_boot.reasons),
                seconds=round(took[line.hosts[0]], 3) if took and line.hosts[0] in took else None,
            )
            for line in host_lines(results, fold=False)
        ),
        results=tuple(_rows(results if rows else (), verbose=verbose)),
    )


def _rows(results: Iterable[Result], *, verbose: bool) -> Iterator[Row]:
    return (Row(**{key: getattr(one, key) for key in KEYS}) for one in results if verbose or one.status != "n/a")


def render(
    results: Sequence[Result],
    took: Mapping[str, float] | None = None,
    seconds: float | None = None,
    *,
    verbose: bool = False,
) -> str:
    """Return the document as text, keys in the order of the types, two spaces deep, a line break at the end."""
    return "".join(f"{part}\n" for part in parts(results, took, seconds, verbose=verbose))


AT_ONCE = 2000
"""Number of results written at a time."""


def parts(
    results: Sequence[Result],
    took: Mapping[str, float] | None = None,
    seconds: float | None = None,
    *,
    verbose: bool = False,
) -> Iterator[str]:
    """Yield the same, some lines at a time: the results of a fleet are never in memory as text."""
    told = [one for one in results if verbose or one.status != "n/a"]
    if len(told) <= AT_ONCE:
        yield _text(report(results, took, seconds, verbose=verbose))
        return
    head, _, end = _text(report(results, took, seconds, verbose=verbose, rows=False)).rpartition("[]")
    yield f"{head}["
    for start in range(0, len(told), AT_ONCE):
        # By "\n" alone: what a host says may hold U+2028 and its like, as they are.
        lines = _text([*_rows(told[start : start + AT_ONCE], verbose=True)]).split("\n")[1:-1]
        yield "\n".join(f"  {line}" for line in lines) + ("," if start + AT_ONCE < len(told) else "")
    yield f"  ]{end}"


def _text(value: object) -> str:
    return format_document(value)
