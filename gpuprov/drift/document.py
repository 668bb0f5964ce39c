"""Drift as one JSON document, printed by `gpuprov drift --json`. docs/reference/drift.schema.json is made from these types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated

import msgspec

from gpuprov import __version__
from gpuprov.drift.drift import exit_code
from gpuprov.drift.model import ORDER, HostDrift
from gpuprov.drift.text import format_summary
from gpuprov.errors import Code
from gpuprov.reading import format_document

FORMAT = 1
WITH_SPACES = {name.replace(" ", "_"): name for name in ORDER}


class Summary(msgspec.Struct, kw_only=True, rename=WITH_SPACES):
    """The fleet in a sentence, and hosts by state. `lost_at_next_boot`: hosts known not to match their specs after the next boot."""

    sentence: str
    unreachable: int
    drifted: int
    unknown: int
    never_applied: int
    spec_changed: int
    as_applied: int
    lost_at_next_boot: int


class Drift(msgspec.Struct, kw_only=True):
    """The document. `seconds`: the time that reading the hosts took."""

    gpuprov_drift: Annotated[int, msgspec.Meta(description="Version of this format")] = FORMAT
    gpuprov: str = __version__
    exit_code: Code
    seconds: Annotated[float, msgspec.Meta(ge=0)] | None
    hosts: tuple[HostDrift, ...]
    summary: Summary


def build_document(hosts: Sequence[HostDrift], seconds: float | None = None) -> Drift:
    """Build the document."""
    counted = Counter(host.state for host in hosts)
    states = {name: counted[state] for name, state in zip(WITH_SPACES, ORDER, strict=True)}
    lost = sum(host.is_lost for host in hosts)
    return Drift(
        exit_code=exit_code(hosts),
        seconds=None if seconds is None else round(seconds, 3),
        hosts=tuple(hosts),
        summary=Summary(sentence=format_summary(hosts), lost_at_next_boot=lost, **states),
    )


def as_json(hosts: Sequence[HostDrift], seconds: float | None = None) -> str:
    """Format the document as text."""
    return format_document(build_document(hosts, seconds))
