"""What a host's package managers remember: which package was changed when, by which command, and for whom where they say it.

apt's history.log, dnf 4's dnf.log and dnf.rpm.log, libzypp's history. Shell histories are never read. apt and libzypp write local time
without a zone; the host's present offset is taken for it, so that a time before a change of the clocks can be an hour off.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone

import msgspec

from gpuprov.probe.base import Output, Probe


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One package that was installed, upgraded, downgraded or removed. `before` and `after` are versions, empty where the log names
    none; `command` is the command line as it was logged, `user` who asked for it."""

    at: datetime
    action: str
    package: str
    before: str = ""
    after: str = ""
    command: str = ""
    user: str = ""


class History(msgspec.Struct, frozen=True):
    """Events, the oldest first. `logs`: the package managers whose logs are there; without one nothing is known."""

    events: tuple[Event, ...] = ()
    logs: tuple[str, ...] = ()


_APT = {"install": "installed", "reinstall": "reinstalled", "upgrade": "upgraded", "downgrade": "downgraded"}
_APT |= {"remove": "removed", "purge": "removed"}
_APT_PACKAGE = re.compile(r"(?<![^\s,()])([^\s,:()]++)(?::([^\s,()]++))? \(([^()]*+)\)")
_RPM = re.compile(
    r"(?P<name>.+)-(?:(?P<epoch>\d+):)?(?P<version>[^-:]+-[^-]+?)(?:\.(?:x86_64|aarch64|noarch|i[3-6]86))?\Z"
)
_DNF = {"Installed": "installed", "Reinstall": "reinstalled", "Upgrade": "upgraded", "Downgrade": "downgraded"}
_DNF |= {"Erase": "removed", "Removed": "removed", "Obsoleted": "removed"}
_DNF_OLD = {"Upgraded": "upgraded", "Downgraded": "downgraded"}
_READS = (
    "makecache repolist repoquery list info search provides check-update check help versionlock config-manager".split()
)
_DNF_READS = re.compile(rf"\S+(?: -\S+)* (?:{'|'.join(_READS)})\b")
"""Commands that change no package, of those that dnf logs."""


def parse_history(output: Output) -> History:
    zone: timezone = UTC
    parts: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in output.text.splitlines():
        if line.startswith("@zone "):
            zone = _offset(line.removeprefix("@zone ").strip())
        elif line in ("@apt", "@dnf", "@zypper"):
            lines = parts.setdefault(line[1:], [])
        else:
            lines.append(line)
    events = [
        *_of_apt(parts.get("apt", []), zone),
        *_of_dnf(parts.get("dnf", [])),
        *_of_zypper(parts.get("zypper", []), zone),
    ]
    return History(tuple(sorted(events, key=lambda event: event.at)), tuple(parts))


def _offset(text: str) -> timezone:
    found = re.fullmatch(r"([+-])(\d\d)(\d\d)", text)
    if not found:
        raise ValueError(f"no offset of a time zone: {text[:20]!r}")
    minutes = int(found[2]) * 60 + int(found[3])
    return timezone(timedelta(minutes=-minutes if found[1] == "-" else minutes))


def _of_apt(lines: list[str], zone: timezone) -> Iterator[Event]:
    """Blocks that begin with Start-Date; what is before the first one was cut off by the limit of what is read."""
    block: dict[str, str] = {}
    for line in [*lines, "Start-Date: "]:
        key, _, value = line.partition(": ")
        if key == "Start-Date":
            yield from _of_block(block, zone)
            block = {}
        if key == "Start-Date" or "start-date" in block:
            block[key.lower()] = value.strip()


def _of_block(block: dict[str, str], zone: timezone) -> Iterator[Event]:
    if not (at := _local(" ".join(block.get("start-date", "").split()), zone)):
        return
    for key, action in _APT.items():
        for name, _arch, told in _APT_PACKAGE.findall(block.get(key, "")):
            versions = [version for version in told.split(", ") if version != "automatic"]
            old = action in ("upgraded", "downgraded", "removed")
            yield Event(
                at=at,
                action=action,
                package=name,
                before=versions[0] if versions and old else "",
                after=versions[-1] if versions and action != "removed" else "",
                command=block.get("commandline", ""),
                user=block.get("requested-by", ""),
            )


def _of_dnf(lines: list[str]) -> Iterator[Event]:
    """Each package by the last command before it that can change one. Its old version stands in a line of its own, later."""
    told: list[tuple[datetime, str, str]] = []
    for line in lines:
        stamp, _, rest = line.partition(" ")
        with_kind = rest.partition(" ")[2].partition(": ")
        if (at := _stamped(stamp)) and with_kind[1]:
            told.append((at, with_kind[0], with_kind[2].strip()))
    command = ""
    events: list[Event] = []
    without: dict[tuple[str, str], list[int]] = {}
    for at, kind, value in sorted(told, key=lambda one: (one[0], one[1] != "Command")):
        if kind == "Command":
            command = command if _DNF_READS.match(value) else value
            continue
        if not (found := _RPM.match(value)):
            continue
        version = (f"{found['epoch']}:" if found["epoch"] not in (None, "0") else "") + found["version"]
        if kind in _DNF_OLD:
            if waiting := without.get((found["name"], _DNF_OLD[kind])):
                number = waiting.pop()
                events[number] = msgspec.structs.replace(events[number], before=version)
        elif kind in _DNF:
            gone = _DNF[kind] == "removed"
            without.setdefault((found["name"], _DNF[kind]), []).append(len(events))
            events.append(
                Event(
                    at=at,
                    action=_DNF[kind],
                    package=found["name"],
                    before=version if gone else "",
                    after="" if gone else version,
                    command=command,
                )
            )
    yield from events


def _of_zypper(lines: list[str], zone: timezone) -> Iterator[Event]:
    """Each package by the command above it. An upgrade is logged as an install of the new version
    (https://opensuse.github.io/libzypp/group__g__ZyppHistory.html)."""
    command = user = ""
    for line in lines:
        cells = [cell.strip() for cell in line.split("|")]
        if line.startswith("#") or len(cells) < 4 or not (at := _local(cells[0], zone)):
            continue
        if cells[1] == "command":
            user, command = cells[2], cells[3].replace("'", "")
        elif cells[1] in ("install", "remove"):
            gone = cells[1] == "remove"
            yield Event(
                at=at,
                action="removed" if gone else "installed",
                package=cells[2],
                before=cells[3] if gone else "",
                after="" if gone else cells[3],
                command=command,
                user=user,
            )


def _local(text: str, zone: timezone) -> datetime | None:
    try:
        return datetime.strptime(text, "%Y-%m-%d %H:%M:%S").replace(tzinfo=zone)
    except ValueError:
        return None


def _stamped(text: str) -> datetime | None:
    """dnf's: `2024-01-29T10:29:23+0100`, or with Z."""
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S%z")
    except ValueError:
        return None


HISTORY = Probe(
    "package_history",
    r"""printf '@zone %s\n' "$(date +%z)"
old() { for f in "$@"; do [ -r "$f" ] && zcat -f "$f" 2>/dev/null; done; }
cd /var/log || exit 0
if [ -r apt/history.log ]; then echo @apt; old apt/history.log.1.gz apt/history.log | tail -c 300000; echo; fi
if [ -r dnf.rpm.log ]; then echo @dnf
  { old dnf.log.1 dnf.log | grep ' Command: ' | tail -n 1000
    old dnf.rpm.log.1 dnf.rpm.log | grep ' SUBDEBUG ' | tail -n 3000; }; fi
if [ -r zypp/history ]; then echo @zypper; grep -E '^[^#]*\|(command|install|remove) *\|' zypp/history | tail -n 3000; fi
true""",
    parse_history,
    "less /var/log/apt/history.log; dnf history; less /var/log/zypp/history",
    speaks=True,
    blank="@",
)
"""What was changed by the package managers lately: the present log and the one before it, within limits."""
