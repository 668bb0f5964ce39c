"""Logs of programs that are well, line by line from public threads, show no symptom, whole and as they come through a
pipe."""

from __future__ import annotations

import io
from pathlib import Path

import msgspec
import pytest
import yaml

from gpuprov.explain.messages import symptoms_in


class HealthyLog(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Lines of a log, with the address of the thread."""

    name: str
    source: str
    lines: tuple[str, ...]


LOADED = yaml.safe_load((Path(__file__).parent / "healthy_logs.yaml").read_text(encoding="utf-8"))
LOGS = msgspec.convert(LOADED, list[HealthyLog])


def keys(log: str) -> list[tuple[str, str]]:
    return [(one.symptom.key, one.line) for one in symptoms_in(io.BytesIO(log.encode()))]


def test_there_are_many_kinds_each_with_its_address() -> None:
    assert len(LOGS) >= 22
    assert len({one.source for one in LOGS}) == len(LOGS)
    assert all(one.source.startswith("https://") for one in LOGS)


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.name)
def test_a_log_of_a_program_that_is_well_is_silent(log: HealthyLog) -> None:
    assert keys("\n".join(log.lines)) == []


def test_all_of_them_together_are_silent() -> None:
    assert keys("\n".join(line for log in LOGS for line in log.lines)) == []
