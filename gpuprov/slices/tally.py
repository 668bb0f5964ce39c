"""Totals of many hosts: a verdict and an exit code, from the results of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from gpuprov.verify.verify import Verdict


class Tally:
    """Counts host by host; keeps no data about a host."""

    def __init__(self) -> None:
        self.states: Counter[str] = Counter()
        self.verdicts: Counter[str] = Counter()
        self.open = 0
        """Count hosts with something skipped and nothing proven, and those that were only prepared."""

    def add(self, state: str, verdict: str, counts: Mapping[str, int]) -> None:
        """Add one host."""
        self.states[state] += 1
        self.verdicts[verdict] += 1
        self.open += state == "prepared" or (verdict == "not proven" and bool(counts.get("skip")))

    @property
    def verdict(self) -> Verdict:
        """Return `gpuprov.verify.verify.verdict` of all their results."""
        if self.verdicts["not as wanted"]:
            return "not as wanted"
        return "as wanted" if self.verdicts["as wanted"] and not self.open else "not proven"

    @property
    def exit_code(self) -> int:
        """Return the exit code of apply: 3 a host failed, 4 one was unreachable, 5 another run works on one, 1 one differs or is not
        proven, 0.

        Hosts that were not started because of a lock count as locked."""
        there = {state for state, number in self.states.items() if number}
        if there & {"failed", "blocked"} or ("not-started" in there and "locked" not in there):
            return 3
        if "unreachable" in there:
            return 4
        if "locked" in there:
            return 5
        good = self.verdict == "as wanted" or there == {"prepared"}
        return int(not good)
