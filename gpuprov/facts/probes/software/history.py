"""The history of a host's package managers: packages changed, with time, command, and user if logged.

apt's history.log, dpkg.log, dnf 4's dnf.log and dnf.rpm.log, libzypp's history. Shell histories are never read. apt,
dpkg and libzypp write local time without a zone: the host reports its offset then, in older captures its present one.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta, timezone

import msgspec

from gpuprov.facts.probes.base import Output, Probe


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One package that was installed, upgraded, downgraded or removed. `before` and `after` are versions, empty if the
    log names none; `command` is the logged command line, `user` the user who ran it."""

    at: datetime
    action: str
    package: str
    before: str = ""
    after: str = ""
    command: str = ""
    user: str = ""


class History(msgspec.Struct, frozen=True):
    """Events, the oldest first. `logs`: the package managers with logs; without any, nothing is known."""

    events: tuple[Event, ...] = ()
    logs: tuple[str, ...] = ()


_APT = {"install": "installed", "reinstall": "reinstalled", "upgrade": "upgraded", "downgrade": "downgraded"}
_APT |= {"remove": "removed", "purge": "removed"}
# /var/log/apt/history.log (https://github.com/lyulyul/shine-cluster/issues/50; a Debian 12 container):
#     Start-Date: 2021-06-04  06:41:09
#     Upgrade: libnvidia-common-460:amd64 (460.73.01-0ubuntu0.20.04.1, 460.80-0ubuntu0.20.04.2)
_APT_PACKAGE = re.compile(r"(?<![^\s,()])([^\s,:()]++)(?::([^\s,()]++))? \(([^()]*+)\)")
# /var/log/dnf.rpm.log of dnf 4; the version that an upgrade replaced follows seconds later:
#     2026-02-14T09:30:12+0000 SUBDEBUG Upgrade: openssl-libs-1:3.2.2-6.el9.x86_64
#     2026-02-14T09:30:14+0000 SUBDEBUG Upgraded: openssl-libs-1:3.0.7-27.el9.x86_64
_RPM = re.compile(
    r"(?P<name>.+)-(?:(?P<epoch>\d+):)?(?P<version>[^-:]+-[^-]+?)(?:\.(?:x86_64|aarch64|noarch|i[3-6]86))?\Z"
)
_DNF = {"Installed": "installed", "Reinstall": "reinstalled", "Upgrade": "upgraded", "Downgrade": "downgraded"}
_DNF |= {"Erase": "removed", "Removed": "removed", "Obsoleted": "removed"}
_DNF_OLD = {"Upgraded": "upgraded", "Downgraded": "downgraded"}
_DNF_BEGINS = "--- logging initialized ---"
_DNF_AUTOMATIC = "Started dnf-automatic."
# Commands in dnf's log that change no package.
_DNF_READS = frozenset(
    "makecache repolist repoinfo repoquery list info search provides whatprovides deplist check-update "
    "check-upgrade check help alias versionlock config-manager updateinfo needs-restarting changelog clean download "
    "mark reposync repoclosure".split()
)
# Arguments with which these commands do change packages.
_DNF_CHANGES = {
    "history": ("undo", "redo", "rollback", "replay"),
    "module": ("install", "remove", "update", "upgrade", "switch-to"),
    "group": ("install", "remove", "erase", "update", "upgrade"),
}
# Options whose value may be the next word.
_DNF_VALUED = frozenset(
    "-c --config -d --debuglevel -e --errorlevel -R --randomwait -x --exclude --excludepkgs --setopt --enablerepo "
    "--disablerepo"
    " --repo --repoid --repofrompath --installroot --releasever --rpmverbosity --color --forcearch --comment "
    "--destdir --downloaddir --advisory --bz --cve --sec-severity --enableplugin --disableplugin "
    "--disableexcludes".split()
)
_LOCAL = "%Y-%m-%d %H:%M:%S"
# Longest time after apt began in which dpkg works for it.
_APT_RUN = timedelta(hours=6)

# UTC offsets of the host, each with the local time from which it applied.
Zones = Sequence[tuple[datetime, timezone]]


def parse_history(output: Output) -> History:
    zones: list[tuple[datetime, timezone]] = [(datetime.min, UTC)]
    parts: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in output.text.splitlines():
        if line.startswith("@zone "):
            zones[0] = (datetime.min, _parse_offset(line.removeprefix("@zone ").strip()))
        elif line.startswith("@since "):
            offset, _, since = line.removeprefix("@since ").partition(" ")
            zones.append((datetime.strptime(since, _LOCAL), _parse_offset(offset)))
        elif line in ("@apt", "@dpkg", "@dnf", "@zypper"):
            lines = parts.setdefault(line[1:], [])
        else:
            lines.append(line)
    by_apt = tuple(_parse_apt(parts.get("apt", []), zones))
    events = [
        *by_apt,
        *_parse_dpkg(parts.get("dpkg", []), zones, by_apt),
        *_parse_dnf(parts.get("dnf", [])),
        *_parse_zypper(parts.get("zypper", []), zones),
    ]
    return History(tuple(sorted(events, key=lambda event: event.at)), tuple(parts))


def _parse_offset(text: str) -> timezone:
    match = re.fullmatch(r"([+-])(\d\d)(\d\d)", text)
    if not match:
        raise ValueError(f"no offset of a time zone: {text[:20]!r}")
    minutes = int(match[2]) * 60 + int(match[3])
    return timezone(timedelta(minutes=-minutes if match[1] == "-" else minutes))


def _parse_apt(lines: list[str], zones: Zones) -> Iterator[Event]:
    """Parse blocks that begin with Start-Date; the text before the first one was truncated by the read limit."""
    block: dict[str, str] = {}
    for line in [*lines, "Start-Date: "]:
        key, _, value = line.partition(": ")
        if key == "Start-Date":
            yield from _parse_block(block, zones)
            block = {}
        if key == "Start-Date" or "start-date" in block:
            block[key.lower()] = value.strip()


def _parse_block(block: dict[str, str], zones: Zones) -> Iterator[Event]:
    if not (at := _parse_local(" ".join(block.get("start-date", "").split()), zones)):
        return
    for key, action in _APT.items():
        for name, _arch, packages in _APT_PACKAGE.findall(block.get(key, "")):
            versions = [version for version in packages.split(", ") if version != "automatic"]
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


def _parse_dpkg(lines: list[str], zones: Zones, by_apt: Iterable[Event]) -> Iterator[Event]:
    """Parse dpkg's changes that apt's own log does not have. dpkg logs no command."""
    changes: dict[tuple[str, str, str], list[datetime]] = {}
    for event in sorted(by_apt, key=lambda event: event.at):
        changes.setdefault((event.package, event.after, event.after or event.before), []).append(event.at)
    for line in lines:
        cells = line.split()
        if len(cells) != 6 or cells[2] not in ("install", "upgrade", "remove"):
            continue
        package = cells[3].partition(":")[0]
        before, after = ("" if cell == "<none>" else cell for cell in cells[4:])
        begun = changes.get((package, after, after or before), [])
        if not (at := _parse_local(" ".join(cells[:2]), zones)):
            continue
        if not (number := bisect_right(begun, at)) or at > begun[number - 1] + _APT_RUN:
            action = {"install": "installed", "upgrade": "upgraded", "remove": "removed"}[cells[2]]
            action = "reinstalled" if before == after else action  # which dpkg calls an upgrade to the same version
            gone = cells[2] == "remove"
            yield Event(
                at=at, action=action, package=package, before=before, after="" if gone else after, command="dpkg"
            )


def _is_dnf_query(command: str) -> bool:
    """Return whether the command changes no package."""
    words = iter(command.split()[1:])
    plain: list[str] = []
    for word in words:
        if word in _DNF_VALUED:
            next(words, None)
        elif not word.startswith("-"):
            plain.append(word)
    verb, of = [*plain, "", ""][:2]
    return not verb or verb in _DNF_READS or (verb in _DNF_CHANGES and of not in _DNF_CHANGES[verb])


def _select_runs(lines: Iterable[tuple[datetime, str, str]]) -> list[tuple[datetime, str]]:
    """Return begin and command of each run of dnf; programs that use dnf as a library, as Ansible does, log a begin
    only. A command that changes no package is left out with its begin, as it may run beside one that does."""
    runs: list[tuple[datetime, str]] = []
    for at, kind, value in lines:
        if kind == _DNF_BEGINS:
            runs.append((at, ""))
            continue
        if runs and not runs[-1][1]:
            at = runs.pop()[0]
        if kind == _DNF_AUTOMATIC:
            runs.append((at, "dnf-automatic"))
        elif not _is_dnf_query(value):
            runs.append((at, value))
    return runs


def _parse_dnf(lines: list[str]) -> Iterator[Event]:
    """Parse dnf's changes, each with the run before it. A package's old version is in a later line of its own."""
    changes: list[tuple[datetime, str, str]] = []
    begun: list[tuple[datetime, str, str]] = []
    for line in lines:
        stamp, _, rest = line.partition(" ")
        kind, _, value = rest.partition(" ")[2].strip().partition(": ")
        if at := _parse_stamp(stamp):
            (begun if kind in ("Command", _DNF_BEGINS, _DNF_AUTOMATIC) else changes).append((at, kind, value))
    runs = _select_runs(sorted(begun, key=lambda run: run[0]))
    events: list[Event] = []
    without: dict[tuple[str, str], list[int]] = {}
    for at, kind, value in sorted(changes, key=lambda change: change[0]):
        if not (match := _RPM.match(value)):
            continue
        version = (f"{match['epoch']}:" if match["epoch"] not in (None, "0") else "") + match["version"]
        if kind in _DNF_OLD:
            if waiting := without.get((match["name"], _DNF_OLD[kind])):
                number = waiting.pop()
                events[number] = msgspec.structs.replace(events[number], before=version)
        elif kind in _DNF:
            gone = _DNF[kind] == "removed"
            without.setdefault((match["name"], _DNF[kind]), []).append(len(events))
            events.append(
                Event(
                    at=at,
                    action=_DNF[kind],
                    package=match["name"],
                    before=version if gone else "",
                    after="" if gone else version,
                    command=runs[number - 1][1] if (number := bisect_right(runs, at, key=lambda run: run[0])) else "",
                )
            )
    yield from events


def _parse_zypper(lines: list[str], zones: Zones) -> Iterator[Event]:
    """Parse zypper's changes, each with the command above it. An upgrade is logged as an install of the new version
    (https://opensuse.github.io/libzypp/group__g__ZyppHistory.html)."""
    command = user = ""
    for line in lines:
        # 2008-09-24 11:53:10|command|root@kompost|'zypper' 'install' 'amarok'|
        # 2008-09-24 11:53:10|install|amarok-yauap|1.4.10-25|x86_64||factory|4421dfa718ab73c805c1c695c97b1b67f39bf2f3
        # 2008-09-24 11:53:45|remove |amarok|1.4.10-100.pm.1|x86_64|root@kompost|
        cells = [cell.strip() for cell in line.split("|")]
        if line.startswith("#") or len(cells) < 4 or not (at := _parse_local(cells[0], zones)):
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


def _parse_local(text: str, zones: Zones) -> datetime | None:
    try:
        local = datetime.strptime(text, _LOCAL)
    except ValueError:
        return None
    return local.replace(tzinfo=zones[max(bisect_right(zones, local, key=lambda zone: zone[0]) - 1, 0)][1])


def _parse_stamp(text: str) -> datetime | None:
    """Parse a timestamp of dnf: `2024-01-29T10:29:23+0100`, or with Z."""
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S%z")
    except ValueError:
        return None


# Recent changes by the package managers: the present log and the one before it, within limits.
HISTORY = Probe(
    "package_history",
    r"""printf '@zone %s\n' "$(date +%z)"
both() {
  old=$(ls -t "$1".1 "$1".1.gz "$1".1.xz "$1"-[0-9]* 2>/dev/null | head -n 1)
  { case $old in *.xz) xz -dc "$old";; ?*) zcat -f "$old";; esac; cat "$1"; } 2>/dev/null | tr -d '\000'
}
by_apt() { both apt/history.log | tail -c 300000; }
by_dpkg() { both dpkg.log | grep -aE '^[0-9-]+ [0-9:]+ (install|upgrade|remove) ' | tail -n 1000; }
by_zypper() { both zypp/history | grep -aE '^[^#]*\|(command|install|remove) *\|' | tail -n 3000; }
cd /var/log || exit 0
if [ -r apt/history.log ]; then echo @apt; by_apt; echo; fi
if [ -r dpkg.log ]; then echo @dpkg; by_dpkg; fi
if [ -r dnf.rpm.log ]; then echo @dnf
  both dnf.log | grep -aE ' Command: | --- logging initialized ---| Started dnf-automatic' | tail -n 3000
  both dnf.rpm.log | grep -a ' SUBDEBUG ' | tail -n 3000; fi
if [ -r zypp/history ]; then echo @zypper; by_zypper; fi
{ by_apt; by_dpkg; by_zypper; } | grep -aoE '^(Start-Date: )?[0-9]{4}-[0-9]{2}-[0-9]{2} +[0-9:]{8}' |
  sed 's/^Start-Date: //; s/  */ /' | sort -u | date -f - '+@since %z %F %T' 2>/dev/null | uniq -w 12
true""",
    parse_history,
    "less /var/log/apt/history.log /var/log/dpkg.log; dnf history; less /var/log/zypp/history",
    speaks=True,
    blank="@",
)
