"""Which symptoms `gpuprov explain` names in whole logs of hosts that are well: python -m tests.explain.whole_logs
FOLDER

FOLDER has the files of whole_logs.yaml by their names; none of them is in this repository.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import yaml

from gpuprov.explain.messages import symptoms_in


class WholeLog(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A log, its host, and its address."""

    name: str
    host: str
    source: str


LOADED = yaml.safe_load((Path(__file__).parent / "whole_logs.yaml").read_text(encoding="utf-8"))
LOGS = msgspec.convert(LOADED, list[WholeLog])


def list_alarms(path: Path) -> list[str]:
    """Return the symptoms named in a log, each with its first line."""
    with path.open("rb") as stream:
        return [f"{seen.symptom.key}: {seen.line}" for seen in symptoms_in(stream)]


def measure(folder: Path) -> None:
    """Print the symptoms named in the logs that the folder has, and how many logs are silent."""
    found = {log.name: list_alarms(folder / log.name) for log in LOGS if (folder / log.name).is_file()}
    for name, alarms in found.items():
        for alarm in alarms:
            print(f"{name}: {alarm}")
    hosts = {log.host for log in LOGS if log.name in found}
    silent = sum(not alarms for alarms in found.values())
    verb = "is" if silent == 1 else "are"
    of_hosts = f"{len(hosts)} host{'s' if len(hosts) != 1 else ''}"
    print(f"{silent} of {len(found)} logs of {of_hosts} {verb} silent; {len(LOGS) - len(found)} are not there")


if __name__ == "__main__":
    measure(Path(sys.argv[1]))
