"""Results of a fleet that was never there."""

from __future__ import annotations

from typing import Any

from gpuprov.jobs.model import HostResult, Row

TIME = "2026-11-23T18:00:00.000Z"
FAILURE = Row(
    check="nvidia_driver.version",
    status="fail",
    fields=("version",),
    expected="580.95.05",
    found="535.183.01",
    evidence="dpkg -l",
    fix="gpuprov apply",
)
SKIPPED = Row(check="dcgm.health", status="skip", found="dcgmi is not there")


def result(host: str, **more: Any) -> HostResult:
    """A good end of verify, unless `more` says another."""
    told: dict[str, Any] = {"run": "r1", "job": "j" * 64, "fleet": "f" * 64, "act": "verify", "state": "verified"}
    told |= {"verdict": "matches", "counts": {"pass": 30}, "started": TIME, "ended": TIME}
    return HostResult(**{**told, "host": host, **more})
