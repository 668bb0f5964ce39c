"""Captured outputs of the probes' commands, by probe and case."""

from pathlib import Path

from gpuprov.probe.base import Output

DATA = Path(__file__).parent / "data"


def captured(probe: str, case: str, status: int = 0) -> Output:
    """What the probe's command printed on a real host."""
    return Output((DATA / probe / f"{case}.txt").read_text(encoding="utf-8"), status)
