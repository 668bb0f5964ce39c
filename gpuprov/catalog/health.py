"""Where the thresholds of `health` are from."""

from __future__ import annotations

from gpuprov.catalog.reader import Fact, File, load


class Default(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a field of `health` is where the spec does not say."""

    key: str
    value: int | float | str | bool
    text: str


class HealthFile(File, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """data/health.yaml"""

    defaults: tuple[Default, ...]


def health_file() -> HealthFile:
    return load("health", HealthFile)
