"""Condensed parts of a report: a finding with its hosts, hosts with equal outcomes, totals."""

import msgspec

from gpuprov.inventory.names import fold_names as names
from gpuprov.verify.evaluate import Result, ResultStatus
from gpuprov.verify.verify import NextBoot, Verdict

# The statuses that count, the worst first, without n/a.
ORDER: tuple[ResultStatus, ...] = ("unreachable", "fail", "error", "skip", "pass")
LOUD = ORDER[:3]
EVERY: tuple[ResultStatus, ...] = (*ORDER, "n/a")
# Key in counts for failures caused by another failure, which are not counted as failures.
FOLLOW = "follow"
WORDS = {"unreachable": "unreachable", "fail": "failed", "error": "in error", "skip": "skipped", "pass": "passed"}


def that_follow(count: int) -> str:
    """Return `1 that follows`, `8 that follow`."""
    return f"{count:,} that follow{'s' * (count == 1)}"


class Finding(msgspec.Struct, frozen=True):
    """One result, every host with exactly that result, and the checks that failed on them only because of it, each
    once."""

    result: Result
    hosts: tuple[str, ...]
    followers: tuple[Result, ...] = ()

    @property
    def where(self) -> str:
        return names(self.hosts)


class HostLine(msgspec.Struct, frozen=True):
    """Hosts with equal counts and equal next-boot verdicts."""

    hosts: tuple[str, ...]
    counts: dict[str, int]
    next_boot: NextBoot

    @property
    def where(self) -> str:
        return names(self.hosts)

    @property
    def worst(self) -> ResultStatus:
        return next((status for status in ORDER if self.counts.get(status)), "skip")

    @property
    def summary(self) -> str:
        if self.worst == "unreachable":
            return WORDS["unreachable"]
        parts = [
            that_follow(self.counts[status]) if status == FOLLOW else f"{self.counts[status]:,} {WORDS[status]}"
            for status in (*ORDER[:3], FOLLOW, *ORDER[3:])
            if self.counts.get(status)
        ]
        return ", ".join(parts) or "nothing to verify"


class Summed(msgspec.Struct, frozen=True):
    """Totals of all results."""

    hosts: int
    # Hosts that differ from their spec.
    bad: int
    # Without those that `follow` from another failure.
    counts: dict[ResultStatus, int]
    follow: int
    verdict: Verdict
