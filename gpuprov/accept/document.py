"""The document of `gpuprov accept`."""

from typing import Literal

import msgspec

from gpuprov.accept.model import Finding, Outcome, Status
from gpuprov.accept.outliers import Outlier, find_outliers
from gpuprov.core.fill import fill
from gpuprov.facts.probes.acceptance import Measurement
from gpuprov.report.document import Document, HostDocument, Summary, conclude, sum_up

AcceptVerdict = Literal["accepted", "NOT accepted", "nothing was measured", "interrupted"]


class AcceptedRow(msgspec.Struct, kw_only=True):
    """One finding. `wanted` is in words, `threshold` the figure (0: none), `published` its source, empty for the spec's
    own. `measurement`: null if a host was left out."""

    host: str
    check: str
    status: Status
    found: str
    wanted: str
    fix: str
    evidence: str
    threshold: float
    published: str
    measurement: Measurement | None


class AcceptedSummary(Summary, kw_only=True):
    """Hosts, and findings by status."""

    findings: dict[Status, int]


class Accepted(Document, kw_only=True, tag="accept"):
    """The document. `outliers`: one sentence each, the worst first. `results`: every finding. `notes`: messages for the
    reader."""

    run: str
    verdict: AcceptVerdict
    summary: AcceptedSummary
    interrupted: bool
    notes: tuple[str, ...]
    outliers: tuple[Outlier, ...]
    results: tuple[AcceptedRow, ...]


def build_document(run: Outcome) -> Accepted:
    """Build the document."""
    outcomes = run.outcomes
    findings = {status: number for status, number in run.counted.items() if number}
    return conclude(
        Accepted,
        run,
        outcomes.values(),
        run.seconds,
        verdict=verdict(run),
        summary=sum_up(AcceptedSummary, format_summary(run), outcomes.values(), findings=findings),
        hosts=tuple(HostDocument(host=host, outcome=outcome) for host, outcome in outcomes.items()),
        outliers=tuple(find_outliers(run)),
        results=tuple(_build_row(finding) for finding in run.findings),
    )


WORDS: dict[Status, str] = {
    "unreachable": "unreachable",
    "fail": "missed",
    "error": "without a figure",
    "skip": "skipped",
    "pass": "passed",
}


def format_summary(run: Outcome) -> str:
    """Format the summary: `accepted: 8 hosts, 120 passed`."""
    parts = [f"{number} {WORDS[status]}" for status, number in run.counted.items() if number]
    return f"{verdict(run)}: {len(run.hosts)} host{'s' * (len(run.hosts) != 1)}, {', '.join(parts) or 'no test'}"


def verdict(outcome: Outcome) -> AcceptVerdict:
    """Return the verdict on the whole run."""
    if outcome.interrupted:
        return "interrupted"
    counted = outcome.counted
    if counted["unreachable"] or counted["fail"] or counted["error"]:
        return "NOT accepted"
    return "accepted" if counted["pass"] else "nothing was measured"


def _build_row(finding: Finding) -> AcceptedRow:
    judged = finding.verdict
    threshold, published = (judged.threshold, judged.origin) if judged else (0.0, "")
    return fill(AcceptedRow, finding, wanted=finding.expected, threshold=threshold, published=published)
