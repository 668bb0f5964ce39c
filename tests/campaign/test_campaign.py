"""Some runs of the campaign: `make faults` has all."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.campaign.__main__ import campaign

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def test_hosts_of_one_apply_with_a_fault_each(tmp_path: Path) -> None:
    broken = campaign(8, "test", 2, time.time() + 3600, None, tmp_path, just="small")
    rows = [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text(encoding="utf-8").splitlines()]
    assert sorted(row["number"] for row in rows) == list(range(8))
    assert broken == 0, [row for row in rows if row["broken"]]
