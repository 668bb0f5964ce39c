"""Totals of many hosts: a verdict and an exit code, from the results of each."""

from collections import Counter
from collections.abc import Mapping

from gpuprov.apply.model import NOT_DONE
from gpuprov.core.errors import Code, Outcome, choose_code, find_worst
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
        if self.verdicts["differs"]:
            return "differs"
        return "matches" if self.verdicts["matches"] and not self.open else "not proven"

    @property
    def waits(self) -> Outcome:
        """Return the outcome of hosts that were not started: they wait for another run's, if there are any."""
        return "locked" if self.states["locked"] else "failed"

    @property
    def outcome(self) -> Outcome:
        """Return the outcome as of apply. A host that was only prepared counts as proven among such hosts alone."""
        states = {state for state, number in self.states.items() if number}
        undone = [self.waits if state == "not-started" else NOT_DONE.get(state, "ok") for state in states]
        good = self.verdict == "matches" or states == {"prepared"}
        return find_worst([*undone, "ok" if good else "differs"])

    @property
    def exit_code(self) -> Code:
        """Return the exit code of the command that worked on these hosts."""
        return choose_code([self.outcome])
