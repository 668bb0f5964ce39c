"""Where the thresholds of `health` are from."""

from __future__ import annotations

import msgspec

from gpuprov.catalog.reader import Fact, Source, load


class Default(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a field of `health` is where the spec does not say."""

    key: str
    value: int | float | str | bool
    text: str


class HealthFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """data/health.yaml"""

    sources: dict[str, Source]
    defaults: tuple[Default, ...]


def health_file() -> HealthFile:
    return load("health", HealthFile)
