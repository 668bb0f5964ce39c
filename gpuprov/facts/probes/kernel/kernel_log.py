"""The kernel log: lines about GPUs, NVSwitches, PCIe, RDMA devices and the kernel itself; since this boot, or since a
time."""

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec

from gpuprov.catalog.kernel import ADDRESS, NVIDIA, beginnings, nic_drivers
from gpuprov.catalog.xids import SXID, XID, find_action
from gpuprov.core.safe_parse import is_whole
from gpuprov.facts.probes.base import Output, Probe, ProbeFailed
from gpuprov.facts.probes.host.checkpoints import PRINTED, Repair, list_repairs
from gpuprov.host_code import kernel_lines

# Seconds after a boot within which a complete log begins.
SLACK = 300


class Line(msgspec.Struct, frozen=True):
    """A line without its timestamp; `at` in Unix time."""

    at: float
    text: str
    # The number of lines of its kind, itself included.
    times: int = 1


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Xids, or SXids, of one number on one device: their count, and the last one's time and text after the number.
    Fatal ones are kept apart from the others."""

    device: str
    number: int
    count: int
    at: float
    text: str
    switch: bool = False


class KernelLog(msgspec.Struct, frozen=True, kw_only=True):
    """The log. `source`: journal or dmesg, empty if neither can be read. `first`: the log's first time, and `whole`:
    whether it begins with the kernel's first line; `searched`: from a record that has NVIDIA's lines alone. `boot`:
    start of the kernel, `since` the requested start, None: this boot. `lines`: relevant lines, the oldest first; of one
    kind the last ones. `resets`: those that gpuprov made, which no line shows."""

    source: str = ""
    now: float = 0
    boot: float = 0
    since: float | None = None
    first: float | None = None
    whole: bool = False
    searched: bool = False
    lines: tuple[Line, ...] = ()
    resets: tuple[Repair, ...] = ()

    def begins(self) -> float:
        """The requested start of the log."""
        return self.boot if self.since is None else self.since

    def booted(self) -> float:
        """The time from which lines belong to this boot."""
        # If only this boot was requested, all do: the first ones may bear the time of a clock that was wrong until the
        # network set it, and the kernel counts back from the right time.
        return 0.0 if self.since is None else self.boot

    def missing(self) -> float | None:
        """The begin of the log, if it is later than requested."""
        if self.since is None and self.whole:
            return None
        return self.first if self.first is not None and self.first > self.begins() + SLACK else None

    def matching(self, pattern: str) -> tuple[Line, ...]:
        """Return the kernel's lines that begin with the pattern. The rest may be text that a user of the host chose."""
        program = kernel_lines.OF_A_PROGRAM
        return tuple(line for line in self.lines if re.match(pattern, line.text) and not re.match(program, line.text))


# Pattern of the first lines of a boot: on Arm CPUs and with early microcode there is a line before the version.
FIRST = re.compile("Linux version |Booting Linux on |microcode: (microcode )?updated early ")


def parse(output: Output) -> KernelLog:
    fields: dict[str, str] = {}
    lines: list[Line] = []
    repairs: list[str] = []
    for row in output.text.splitlines():
        kind, _, rest = row.partition("|")
        if kind == "line":
            if line := _parse_line(rest, fields):
                lines.append(line)
        elif kind == "times":
            number, _, row = rest.partition("|")
            if is_whole(number) and (line := _parse_line(row, fields)):
                lines.append(msgspec.structs.replace(line, times=int(number)))
        elif kind == "repair":
            repairs.append(rest)
        elif kind == "first":
            fields[kind] = rest
        elif kind in ("now", "boot", "since", "source", "searched"):
            fields[kind] = rest.strip()
    if not is_whole(fields.get("now", "")) or not is_whole(fields.get("boot", "")):
        raise ProbeFailed(f"the host's clock and boot cannot be read: {output.text.strip()[:120]!r}")
    since = float(fields["since"]) if is_whole(fields.get("since", "")) else None
    first = _parse_line(fields["first"], fields) if fields.get("first") else None
    if fields.get("first") and fields.get("source") == "dmesg" and first is None:
        raise ProbeFailed(
            "the kernel's lines have no time in dmesg", "printk.time=1 on the kernel's command line, or a journal"
        )
    return KernelLog(
        source=fields.get("source", ""),
        now=float(fields["now"]),
        boot=float(fields["boot"]),
        since=since,
        first=first.at if first else None,
        searched="searched" in fields,
        whole=first is not None and FIRST.match(first.text) is not None,
        resets=tuple(_select_resets(repairs, float(fields["now"]))),
        lines=tuple(sorted((line for line in lines if since is None or line.at >= since), key=lambda line: line.at)),
    )


def _select_resets(rows: Iterable[str], now: float) -> Iterator[Repair]:
    for repair in list_repairs(rows):
        if repair.act == "reset" and not repair.problem and repair.is_made_by(now):
            yield repair


def _parse_line(row: str, fields: Mapping[str, str]) -> Line | None:
    """Parse a line of `journalctl -o short-unix`: `1763848800.123456 host kernel: ...`; or of dmesg:
    `[   12.345678] ...`."""
    # 1763890000.000001 gpu1 kernel: mlx5_core 0000:01:00.0: firmware version: 20.27.446
    if match := re.match(r"(\d{9,11}\.\d+) \S+ [^\s:]+: (.*)\Z", row):
        return Line(float(match[1]), match[2])
    # [    0.000000] Linux version 6.1
    # CONFIG_PRINTK_CALLER adds the thread or CPU: [    0.000000][    T0]
    if match := re.match(r"\[ *(\d{1,10}\.\d+)\](?:\[[^\]]*\])? (.*)\Z", row):
        return Line(float(fields.get("boot") or 0) + float(match[1]), match[2])
    return None


NIC_DRIVERS = nic_drivers()
_NAMED = f"({'|'.join(NIC_DRIVERS)})"
# Pattern of the beginnings of lines from network adapters' drivers: with the address of their function, as a module for
# RDMA logs them, too (__ibdev_printk, https://github.com/torvalds/linux/blob/master/drivers/infiniband/core/device.c);
# of the watchdog of kernels before 6.5; with the name of the RDMA device alone (dev_err of a device of the class
# infiniband), as mlx5_ib does, and drivers built for older kernels
# (https://github.com/amzn/amzn-drivers/blob/master/kernel/linux/efa/src/kcompat.h).
NIC = (
    f"{_NAMED} {ADDRESS}( [^ :]+)?: |{_NAMED}: probe of {ADDRESS} failed |NETDEV WATCHDOG: |infiniband "
    "[a-z][a-zA-Z0-9_-]*: "
)


FATAL = r"(?<![\w-])[Ff]atal\b"


def xids(log: KernelLog) -> tuple[Event, ...]:
    """List Xids by GPU and number, the latest first."""
    return _collect_events(log, XID, switch=False)


def sxids(log: KernelLog) -> tuple[Event, ...]:
    """List SXids by NVSwitch and number. Each has several lines, the first of which says whether it is fatal."""
    return _collect_events(log, SXID, switch=True)


def _collect_events(log: KernelLog, pattern: re.Pattern[str], *, switch: bool) -> tuple[Event, ...]:
    events: dict[tuple[str, int, bool, str], Event] = {}
    for line in log.lines:
        match = pattern.match(line.text)
        if match is None:
            continue
        device, number, text = match[1].lower(), int(match[3 if switch else 2]), (match.groups()[-1] or "").strip()
        if switch and not re.match(r"(?i)(non-)?fatal", text):
            continue
        key = device, number, re.search(FATAL, text) is not None, "" if switch else find_action(number, text)
        count = (events[key].count if key in events else 0) + line.times
        events[key] = Event(device=device, number=number, count=count, at=line.at, text=text, switch=switch)
    return tuple(sorted(events.values(), key=lambda event: -event.at))


UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds(since: str, now: float | None = None) -> str:
    """Convert the script's argument: empty for this boot, `-SECONDS` before now, or `@TIME`. Raises ValueError."""
    if since == "boot":
        return ""
    if match := re.fullmatch(r"([1-9][0-9]{0,5})([smhd])", since):
        return f"-{int(match[1]) * UNITS[match[2]]}"
    at = datetime.fromisoformat(since.replace("Z", "+00:00")).timestamp()
    if at > (time.time() if now is None else now):
        raise ValueError("that is in the future")
    return f"@{int(at)}"


def build_variables(host: Any) -> Mapping[str, str]:
    """Return the variable of a script that begins with SINCE."""
    block = host.capabilities.get("health")
    return {"since": seconds(block.since) if block else ""}


# Shell: $since in Unix time, empty for this boot; $n is now.
SINCE = "case ${since:-} in -*) since=$((n + since));; @*) since=${since#@};; *) since=;; esac"
# Pattern of lines of NVIDIA's driver that are judged; other ones are reported where a symptom has their words.
DRIVER = f"NVRM: Xid [(]|nvidia-nvswitch[0-9]+: SXid|{beginnings(['driver_log'])}"
KERNEL = f"{beginnings(['pcie_errors', 'kernel'])}|{NIC}"
PROGRAMS = f"{beginnings(['programs'])}|{beginnings(['programs'], of_program=True)}"
# Pattern of what differs in lines of one kind: times, memory addresses, process ids. A device's bus and a severity
# stay.
NUMBERS = "0x[0-9a-f]+|[0-9][0-9][0-9]+"
# Maximum number of kinds of lines.
KINDS = 200
_SCRIPT = f"""n=$(date +%s); echo "now|$n"
awk '$1 == "btime" {{ print "boot|" $2 }}' /proc/stat
{SINCE}
[ -z "$since" ] || echo "since|$since"
{PRINTED} | sed 's/^/repair|/'
command -v journalctl >/dev/null || command -v dmesg >/dev/null || exit 127
j() {{ journalctl -q --no-pager -o short-unix "$@" 2>/dev/null; }}
if [ -n "$since" ]; then f=$(j _TRANSPORT=kernel | head -n 1); else f=$(j -k -b | head -n 1); fi
if [ -n "$f" ]; then
  echo 'source|journal'
  own() {{ if [ -n "$since" ]; then j _TRANSPORT=kernel --since "@$since"; else j -k -b; fi; }}
else
  f=$(dmesg 2>/dev/null | head -n 1)
  [ -z "$f" ] || echo 'source|dmesg'
  own() {{ dmesg 2>/dev/null; }}
fi
all() {{ own | {kernel_lines.JOINED}; }}
printf 'first|%s\\n' "$f"
s='{kernel_lines.STAMP}'
# Of each kind (k) the last ones, so that what comes by the thousand hides nothing else.
last() {{ awk -v most="$1" "{{ $2; i = n[k]++; l[k, i % most] = \\$0 }}"' END {{
  for (k in n) for (i = b = n[k] > most ? n[k] - most : 0; i < n[k]; i++)
    print (i == b && b ? "times|" b + 1 : "line") "|" l[k, i % most] }}'; }}
all | grep -aE "$s"'({DRIVER})' |
  last 50 'match($0, /Xid [(][^)]*[)]: [0-9]+/); k = substr($0, RSTART, RLENGTH) ($0 ~ /[ ,][Ff]atal[ ,]/)'
k='k = $0; gsub(/{NUMBERS}/, "#", k); gsub(/ +/, " ", k); if (!(k in n) && ++m > {KINDS}) k = "rest"'
all | {kernel_lines.make_filter(NVIDIA)} | grep -avE "$s"'({DRIVER})' | last 5 "$k"
all | {kernel_lines.make_filter(KERNEL)} | last 20 "$k"
all | grep -aE "$s"'({PROGRAMS})' | tail -n 200 | sed 's/^/line|/'
true"""
KERNEL_LOG = Probe("kernel_log", _SCRIPT, parse, "journalctl -k -b; dmesg", asks=build_variables, speaks=True)
