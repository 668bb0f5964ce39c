"""The document of `gpuprov drift`."""

from collections import Counter
from collections.abc import Sequence

from gpuprov.drift.model import ORDER, HostDrift
from gpuprov.drift.text import format_summary
from gpuprov.report.document import Document, Summary, conclude, sum_up

WITH_SPACES = {name.replace(" ", "_"): name for name in ORDER}


class DriftSummary(Summary, kw_only=True, rename=WITH_SPACES):
    """The fleet in a sentence, and hosts by state. `lost_at_next_boot`: hosts known not to match their specs after the
    next boot."""

    unreachable: int
    drifted: int
    unknown: int
    never_applied: int
    spec_changed: int
    as_applied: int
    lost_at_next_boot: int


class Drift(Document, kw_only=True, tag="drift"):
    """The document. `seconds`: the time that reading the hosts took."""

    summary: DriftSummary
    hosts: tuple[HostDrift, ...]


def build_document(hosts: Sequence[HostDrift], seconds: float | None = None) -> Drift:
    """Build the document."""
    counted, outcomes = Counter(host.state for host in hosts), [host.outcome for host in hosts]
    states = {name: counted[state] for name, state in zip(WITH_SPACES, ORDER, strict=True)}
    lost = sum(host.is_lost for host in hosts)
    summary = sum_up(DriftSummary, format_summary(hosts), outcomes, lost_at_next_boot=lost, **states)
    return conclude(Drift, None, outcomes, seconds, summary=summary, hosts=tuple(hosts))
