"""Results of any number of hosts, stored once for all hosts with the same results: the input of a fleet's report.

Failures and skipped checks are stored in full, passed ones only as counts.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from gpuprov.report.folded import FOLLOW, ORDER, Finding, HostLine, Summed
from gpuprov.verify.evaluate import FAILING, Result, ResultStatus
from gpuprov.verify.racks import Rack
from gpuprov.verify.verify import NextBoot, Verdict


class Alike(msgspec.Struct, frozen=True, eq=False):
    """The results of a host, and of all others with the same results. `rows` name no host."""

    rows: tuple[Result, ...]
    counts: Mapping[str, int]
    verdict: Verdict
    next_boot: NextBoot
    state: str = ""
    act: str = ""


class Many:
    """Hosts in the order of a report, and racks of which several report errors. Replaces a list of results wherever a
    report is made from one."""

    def __init__(self, hosts: Mapping[str, Alike], verdict: Verdict, racks: Sequence[Rack] = ()) -> None:
        self.hosts, self.verdict, self.racks = hosts, verdict, racks
        self._place = {host: number for number, host in enumerate(hosts)}
        self.alike: dict[Alike, list[str]] = {}
        for host, entry in hosts.items():
            self.alike.setdefault(entry, []).append(host)

    @property
    def rows(self) -> dict[str, Sequence[Result]]:
        """Return the results that did not pass, by host."""
        return {host: entry.rows for host, entry in self.hosts.items()}

    def findings(self, statuses: Sequence[ResultStatus]) -> list[Finding]:
        """Return the same as `gpuprov.report.fold.findings`."""
        hosts: dict[Result, list[str]] = {}
        followers: dict[Result, dict[str, Result]] = {}
        first: dict[Result, str] = {}
        for entry, names in self.alike.items():
            for row in entry.rows:
                if row.follows or row.status not in statuses:
                    continue
                key = msgspec.structs.replace(row, evidence="") if row.status == "unreachable" else row
                hosts.setdefault(key, []).extend(names)
                first.setdefault(key, row.evidence)
                also = followers.setdefault(key, {})
                for other in entry.rows if row.status in FAILING else ():
                    if other.follows == row.check:
                        also.setdefault(other.check, other)
        return [
            Finding(
                msgspec.structs.replace(key, evidence=first[key]), self._ordered(names), tuple(followers[key].values())
            )
            for key, names in hosts.items()
        ]

    def lines(self, *, fold: bool) -> list[HostLine]:
        """Return the same as `gpuprov.report.fold.host_lines`."""
        if not fold:
            return [HostLine((host,), dict(entry.counts), entry.next_boot) for host, entry in self.hosts.items()]
        same: dict[object, list[str]] = {}
        for entry, names in self.alike.items():
            same.setdefault((tuple(sorted(entry.counts.items())), entry.next_boot), []).extend(names)
        return [HostLine(self._ordered(names), dict(key[0]), key[1]) for key, names in same.items()]  # type: ignore[index]

    def _ordered(self, names: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted(dict.fromkeys(names), key=self._place.__getitem__))

    def summed(self) -> Summed:
        """Return the same as `gpuprov.report.fold.summed`."""
        counts = {
            status: sum(entry.counts.get(status, 0) * len(names) for entry, names in self.alike.items())
            for status in (*ORDER, FOLLOW)
        }
        bad = sum(len(names) for entry, names in self.alike.items() if entry.verdict == "differs")
        follow = counts.pop(FOLLOW)
        return Summed(len(self.hosts), bad, {status: counts[status] for status in ORDER}, follow, self.verdict)
