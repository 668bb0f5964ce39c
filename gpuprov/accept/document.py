"""An acceptance as one JSON document, printed by `gpuprov accept --json`.

docs/reference/accept.schema.json is made from these types.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from gpuprov import __version__
from gpuprov.accept.model import Finding, Outcome, Status
from gpuprov.accept.outliers import Outlier, find_outliers
from gpuprov.errors import Code
from gpuprov.probe.acceptance import Measurement
from gpuprov.reading import format_document

FORMAT = 1
AcceptVerdict = Literal["accepted", "NOT accepted", "nothing was measured", "interrupted"]


class Row(msgspec.Struct, kw_only=True):
    """One finding. `wanted` is in words, `threshold` the figure (0: none), `published` its source, empty for the spec's own.
    `measurement`: null if a host was left out.
    """

    host: str
    check: str
    status: Status
    found: str
    wanted: str
    hint: str
    evidence: str
    threshold: float
    published: str
    measurement: Measurement | None


class Summary(msgspec.Struct, kw_only=True):
    """Hosts, and findings by status."""

    hosts: int
    findings: dict[Status, int]


class Acceptance(msgspec.Struct, kw_only=True):
    """The document. `outliers`: one sentence each, the worst first. `results`: every finding. `notes`: messages for the reader."""

    gpuprov_accept: Annotated[int, msgspec.Meta(description="Version of this format")] = FORMAT
    gpuprov: str = __version__
    run: str
    verdict: AcceptVerdict
    exit_code: Code
    seconds: Annotated[float, msgspec.Meta(ge=0)]
    summary: Summary
    hosts: tuple[str, ...]
    interrupted: bool
    notes: tuple[str, ...]
    outliers: tuple[Outlier, ...]
    results: tuple[Row, ...]


def build_document(outcome: Outcome) -> Acceptance:
    """Build the document."""
    counted = outcome.counted
    return Acceptance(
        run=outcome.run,
        verdict=verdict(outcome),
        exit_code=outcome.exit_code,
        seconds=round(outcome.seconds, 3),
        summary=Summary(hosts=len(outcome.hosts), findings={status: n for status, n in counted.items() if n}),
        hosts=outcome.hosts,
        interrupted=outcome.interrupted,
        notes=tuple(outcome.notes),
        outliers=tuple(find_outliers(outcome)),
        results=tuple(_build_row(finding) for finding in outcome.findings),
    )


def verdict(outcome: Outcome) -> AcceptVerdict:
    """Return the verdict on the whole run."""
    if outcome.interrupted:
        return "interrupted"
    counted = outcome.counted
    if counted["unreachable"] or counted["fail"] or counted["error"]:
        return "NOT accepted"
    return "accepted" if counted["pass"] else "nothing was measured"


def as_json(outcome: Outcome) -> str:
    """Format the document as text."""
    return format_document(build_document(outcome))


def _build_row(finding: Finding) -> Row:
    return Row(
        host=finding.host,
        check=finding.check,
        status=finding.status,
        found=finding.found,
        wanted=finding.wanted,
        hint=finding.hint,
        evidence=finding.evidence,
        threshold=finding.verdict.threshold if finding.verdict else 0.0,
        published=finding.verdict.origin if finding.verdict else "",
        measurement=finding.measurement,
    )
