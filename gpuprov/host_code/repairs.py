"""The record of repairs of this host: one line of JSON for each act, the oldest first.

Health reads the resets in it: no line of the kernel log shows that a single GPU was reset.
"""

from __future__ import annotations

import json
import time
from typing import Sequence

from .files import read, write

RECORD = "/var/lib/gpuprov/repairs.jsonl"
# Maximum number of lines; the newest stay.
MOST = 200


def note(
    run: str, act: str, gpus: Sequence[str], checks: Sequence[str], problem: str = "", at: float | None = None
) -> None:
    """Add an act. gpus: PCI addresses; empty for all. checks: what it was done for. problem: why it was not done. at:
    its time, if not now."""
    line = {
        "at": round(time.time() if at is None else at, 3),
        "run": run,
        "act": act,
        "gpus": [*gpus],
        "checks": [*checks],
        "problem": problem,
    }
    write(RECORD, "".join(f"{text}\n" for text in [*read(RECORD).splitlines()[1 - MOST :], json.dumps(line)]))
