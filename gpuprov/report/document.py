"""The one document that `plan`, `apply`, `verify`, `drift`, `rehearse`, `health`, `repair` and `accept` print with
--json.

All have these keys with one meaning; each command adds its own beside them. docs/reference/document.schema.json is made
of all.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Annotated

import msgspec

from gpuprov import __version__
from gpuprov.core.errors import CODES, Code, Outcome, find_worst
from gpuprov.core.fill import Part, fill
from gpuprov.core.safe_parse import format_document

FORMAT = 1
Seconds = Annotated[float, msgspec.Meta(ge=0)]


class HostDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A host. `outcome`: what came of the command on it."""

    host: str
    outcome: Outcome


class Summary(msgspec.Struct, kw_only=True):
    """All hosts in a sentence, and their number by outcome."""

    sentence: str
    hosts: int
    outcomes: dict[Outcome, int]


class Document(msgspec.Struct, kw_only=True, tag_field="verb"):
    """The document."""

    gpuprov_document: Annotated[int, msgspec.Meta(description="Version of this format")] = FORMAT
    gpuprov: str = __version__
    # The worst of all hosts, on which `exit_code` depends.
    outcome: Outcome
    exit_code: Code
    # Null from records of hosts.
    seconds: Seconds | None
    summary: Summary
    hosts: tuple[HostDocument, ...]


def conclude(
    kind: type[Part], source: object, outcomes: Iterable[Outcome], seconds: float | None, **own: object
) -> Part:
    """Make a document from a run that is its source, or from its hosts' outcomes if the source has none."""
    outcome = getattr(source, "outcome", None) or find_worst(outcomes)
    took = None if seconds is None else round(seconds, 3)
    return fill(kind, source, outcome=outcome, exit_code=CODES[outcome], seconds=took, **own)


def sum_up(kind: type[Part], sentence: str, outcomes: Iterable[Outcome], **own: object) -> Part:
    """Make a summary, the worst outcomes first."""
    counted = Counter(outcomes)
    outcome_counts = {outcome: counted[outcome] for outcome in CODES if counted[outcome]}
    return kind(sentence=sentence, hosts=counted.total(), outcomes=outcome_counts, **own)


def as_json(document: Document) -> str:
    """Return the document as text."""
    return format_document(document)
