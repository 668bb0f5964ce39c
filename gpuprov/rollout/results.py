"""The results of a job: the files that `gpuprov fleet work` writes, read as they appear."""

import os
from collections.abc import Collection, Iterator
from pathlib import Path

from gpuprov.core import safe_parse
from gpuprov.fleet.policy.events import HostEnd, verdict_of
from gpuprov.jobs.model import HostResult

# Characters of a message in an event: the result itself has the full text.
LONGEST = 300


def message(result: HostResult) -> str:
    """Return the reason why the host is not green, in one line."""
    if result.green:
        return ""
    text = result.message or "; ".join(f"{row.check}: {row.found}" for row in result.failures[:2])
    text = text or "; ".join(result.reboot)
    text = text or (f"not proven: {', '.join(row.check for row in result.unproven[:3])}" if result.unproven else "")
    return " ".join((text or result.verdict or result.state).split())[:LONGEST]


class Results:
    """The results in one folder, each reported once."""

    def __init__(self, folder: Path, run: str, act: str) -> None:
        self.folder, self._run, self._act = folder, run, act
        self.seen: dict[str, int] = {}

    def new(self, names: Collection[str]) -> Iterator[HostEnd]:
        """Yield the results of the given hosts that have come since the last call. A file that cannot be read is no
        result."""
        try:
            entries = [
                (entry.name, entry.stat().st_mtime_ns)
                for entry in os.scandir(self.folder)
                if entry.name.endswith(".json")
            ]
        except FileNotFoundError:
            return
        for name, changed in sorted(entries):
            if name.startswith(".") or self.seen.get(name) == changed:
                continue
            try:
                data = safe_parse.read_contents(str(self.folder / name))
                result = safe_parse.parse_typed_json(data, HostResult, largest=safe_parse.FILE)
            except (OSError, safe_parse.Unreadable):
                continue
            self.seen[name] = changed
            if (result.run, result.act) == (self._run, self._act) and result.host in names:
                verdict = verdict_of(result.state, green=result.green, reboot=bool(result.reboot))
                if result.repair == "none left":  # another job may not need its own
                    verdict = "again"
                yield HostEnd(result.host, verdict, result.state, message(result), result.repair)
