"""Captured outputs of the probes' commands, by probe and case."""

from pathlib import Path

from gpuprov.facts.probes.base import Output

DATA = Path(__file__).parent / "data"


REAL = Path(__file__).parents[2] / "real"


def published(capture: str, file: str, status: int = 0) -> Output:
    """What a program printed on somebody's host: a file of tests/real, where it is told whose."""
    return Output((REAL / capture / f"{file}.txt").read_text(encoding="utf-8"), status)


def captured(probe: str, case: str, status: int = 0) -> Output:
    """What the probe's command printed on a real host."""
    return Output((DATA / probe / f"{case}.txt").read_text(encoding="utf-8"), status)
