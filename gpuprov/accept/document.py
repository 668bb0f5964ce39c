"""An acceptance as one JSON document: what `gpuprov accept --json` prints.

docs/reference/accept.schema.json is made from these types.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from gpuprov import __version__
from gpuprov.accept.model import Finding, Outcome, Status
from gpuprov.accept.outliers import Outlier, outliers
from gpuprov.probe.acceptance import Measurement
from gpuprov.reading import as_document

FORMAT = 1
AcceptVerdict = Literal["accepted", "NOT accepted", "nothing was measured", "interrupted"]


class Row(msgspec.Struct, kw_only=True):
    """One finding. `wanted` is in words, `threshold` the figure (0: none), `published` where it is from, empty for the spec's own.
    `measurement`: null where a host was left out."""

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
    """The document. `outliers`: what stands out, the worst first, a sentence each. `results`: every finding. `notes`: to be read."""

    gpuprov_accept: Annotated[int, msgspec.Meta(description="Version of this format")] = FORMAT
    gpuprov: str = __version__
    run: str
    verdict: AcceptVerdict
    exit_code: Literal[0, 1, 4, 130]
    seconds: Annotated[float, msgspec.Meta(ge=0)]
    summary: Summary
    hosts: tuple[str, ...]
    interrupted: bool
    notes: tuple[str, ...]
    outliers: tuple[Outlier, ...]
    results: tuple[Row, ...]


def document(outcome: Outcome) -> Acceptance:
    """The document."""
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
        outliers=tuple(outliers(outcome)),
        results=tuple(_row(one) for one in outcome.findings),
    )


def verdict(outcome: Outcome) -> AcceptVerdict:
    """What it comes to."""
    if outcome.interrupted:
        return "interrupted"
    counted = outcome.counted
    if counted["unreachable"] or counted["fail"] or counted["error"]:
        return "NOT accepted"
    return "accepted" if counted["pass"] else "nothing was measured"


def as_json(outcome: Outcome) -> str:
    """The document as text."""
    return as_document(document(outcome))


def _row(one: Finding) -> Row:
    return Row(
        host=one.host,
        check=one.check,
        status=one.status,
        found=one.found,
        wanted=one.wanted,
        hint=one.hint,
        evidence=one.evidence,
        threshold=one.verdict.threshold if one.verdict else 0.0,
        published=one.verdict.origin if one.verdict else "",
        measurement=one.measurement,
    )
