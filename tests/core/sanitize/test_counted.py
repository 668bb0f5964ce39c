"""A number and its noun."""

from __future__ import annotations

from gpuprov.core.sanitize import counted
from tests.rows import run_each


@run_each(
    ("number", "noun", "text"),
    [
        (1, "GPU", "1 GPU"),
        (0, "GPU", "0 GPUs"),
        (2, "GPU", "2 GPUs"),
        (1, "policy", "1 policy"),
        (2, "boot entry", "2 boot entries"),
        (2, "day", "2 days"),
        (3, "process", "3 processes"),
        (2, "batch", "2 batches"),
        (2, "NVSwitch", "2 NVSwitches"),
    ],
)
def test_counted(number: int, noun: str, text: str) -> None:
    assert counted(number, noun) == text
