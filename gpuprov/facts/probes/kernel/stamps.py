"""The time stamp in front of a line of the kernel's log, in each form that dmesg, journalctl and syslog print."""

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

import msgspec

# From this time on, three years after the boot, lines bear their order in place of a time: their log has no times.
UNTIMED = 99_000_000.0
# Seconds that a line of such a log counts for: those within ten lines belong together as those within half a minute do.
BETWEEN = 3.0


class Stamped(msgspec.Struct, frozen=True, kw_only=True):
    """A line without its stamp. `at`: seconds since 1970, or since the boot if `since_boot`; None if it has no time.
    `program`: what wrote it, and `host`: where, both empty if the line does not say; ?: a program's own log."""

    text: str
    at: float | None = None
    since_boot: bool = False
    program: str = ""
    host: str = ""

    @property
    def of_kernel(self) -> bool:
        return self.program in ("", "kernel")


_MONTHS = {name: number for number, name in enumerate("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(), 1)}
_NAMES = {number: name for name, number in _MONTHS.items()}
_LEAP_YEAR = 2000
# The facility and level that dmesg -r and -x print.
_LEVEL = re.compile(r"(?:<\d{1,3}>|[a-z]+ *:[a-z]+ *: )")
_BOOT = re.compile(r"\[ *(\d{1,10}\.\d{1,9})\](?:\[[^\]]{0,40}\])? ?")
# The node, the facility and the level that `talosctl dmesg` prints:
# https://github.com/siderolabs/talos/blob/main/cmd/talosctl/cmd/talos/dmesg.go.
_TALOS = re.compile(r"([\w.:-]{1,64}): ([a-z]{1,16}): +[a-z]{1,16}: +(?=\[\d{4}-)")
_DELTA = re.compile(r"\[ *\+(\d{1,9}\.\d{1,9})\] ?")
# `[Nov29 01:34] ` of dmesg -H, and `[  +0.000012] ` of the lines after it: seconds since the line before.
_MINUTE = re.compile(r"\[([A-Z][a-z]{2}) *(\d{1,2}) (\d{2}):(\d{2})\] ?")
_UNIX = re.compile(r"(\d{9,11}\.\d{1,9}) ")
# `Nov 29 01:34:49 ` of syslog, and `[Sat Nov 29 01:34:49 2026] ` of dmesg -T.
_DAY = re.compile(
    r"\[?(?:[A-Z][a-z]{2} )?([A-Z][a-z]{2}) +(\d{1,2}) (\d{2}):(\d{2}):(\d{2})(?:[.,](\d{1,9}))?(?: (\d{4}))?(?:\] ?| )"
)
# `août 25 19:38:03 ` of a journal in another language: the lines have their order, and no time that is known here.
_OTHER_DAY = re.compile(
    r"(?:[^\W\d_]{2,10}\.?|\d{1,2}月) +\d{1,2} \d{2}:\d{2}:\d{2}(?:[.,]\d{1,9})? (?=[\w.@-]{1,255} "
    r"[\w.@/()-]{1,64}(?:\[\d|:))"
)
_ISO = re.compile(
    r"\[?(?:[A-Z][a-z]{2} )?(\d{4})-(\d{2})-(\d{2})[T ](\d{2}):(\d{2}):(\d{2})(?:[.,](\d{1,9}))?"
    r"( ?(?:Z|UTC|GMT|[+-]\d{2}:?\d{2}|[A-Z]{2,5}))?(?:\] ?| )"
)
# The host and the program, as syslog and the journal print them.
_WRITER = re.compile(r"([\w.@-]{1,255}) ([\w.@/()-]{1,64})(?:\[\d{1,10}\])?: ")
_KERNEL = re.compile(r"()(kernel): ")


def read_stamp(line: str, year: int = 0) -> Stamped:
    """Split a line into its stamp and its text. `year`: that of a stamp that has none; 0: such a stamp gives no
    time."""
    if level := _LEVEL.match(line):
        line = line[level.end() :]
    if match := _TALOS.match(line):
        stamped = read_stamp(line[match.end() :].replace("]: ", "] ", 1))
        return msgspec.structs.replace(stamped, host=match[1], program="kernel" if match[2] == "kern" else match[2])
    if match := _DELTA.match(line) or _MINUTE.match(line):
        return Stamped(text=line[match.end() :])
    if match := _BOOT.match(line):
        writer = _WRITER.match(line, match.end()) or _KERNEL.match(line, match.end())
        if writer and writer[2] == "kernel":
            rest = line[writer.end() :]
            return Stamped(text=rest, at=float(match[1]), since_boot=True, program="kernel", host=writer[1])
        return Stamped(text=line[match.end() :], at=float(match[1]), since_boot=True)
    if match := _UNIX.match(line):
        return _parse_after_time(line[match.end() :], float(match[1]), host=True)
    if match := _ISO.match(line):
        numbers = [int(match[number]) for number in range(1, 7)]
        host = "," not in match[0] and line[0] != "["
        stamped = _parse_after_time(line[match.end() :], _parse_time(numbers, match[7], match[8] or ""), host=host)
        own = stamped.program or not host or _KERNEL.match(stamped.text)
        return stamped if own else msgspec.structs.replace(stamped, program="?")
    if (match := _DAY.match(line)) and match[1] in _MONTHS:
        of = int(match[7] or year)
        numbers = [of, _MONTHS[match[1]], *(int(match[number]) for number in range(2, 6))]
        return _parse_after_time(
            line[match.end() :], _parse_time(numbers, match[6], "") if of else None, host=line[0] != "["
        )
    if match := _OTHER_DAY.match(line):
        return _parse_after_time(line[match.end() :], None, host=True)
    if match := _KERNEL.match(line):
        return _parse_after_time(line, None, host=False)
    return Stamped(text=line)


def resolve_deltas(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines; those of `dmesg -H` with whole times, counted on from its last line that has one."""
    at: datetime | None = None
    for line in lines:
        if (match := _MINUTE.match(line)) and match[1] in _MONTHS:
            at = datetime(_LEAP_YEAR, _MONTHS[match[1]], min(int(match[2]), 28), int(match[3]) % 24, int(match[4]) % 60)
            at += timedelta(days=int(match[2]) - at.day)
        elif at is not None and (match := _DELTA.match(line)):
            at += timedelta(seconds=float(match[1]))
        else:
            match = None
        yield f"[{_NAMES[at.month]} {at:%d %H:%M:%S}] {line[match.end() :]}" if match and at else line


def _parse_after_time(rest: str, at: float | None, *, host: bool) -> Stamped:
    """Read what follows a time: who wrote the line, and the kernel's own stamp."""
    match = (_WRITER if host else _KERNEL).match(rest)
    host_name, program = (match[1], match[2]) if match else ("", "")
    rest = rest[match.end() :] if match else rest
    own = _BOOT.match(rest) if program == "kernel" else None
    return Stamped(text=rest[own.end() :] if own else rest, at=at, program=program, host=host_name)


def _parse_time(numbers: list[int], fraction: str | None, zone: str) -> float | None:
    zone = zone.strip()
    ahead = 0
    if match := re.fullmatch(r"([+-])(\d{2}):?(\d{2})", zone):
        ahead = (int(match[2]) * 3600 + int(match[3]) * 60) * (1 if match[1] == "+" else -1)
    try:
        moment = datetime(*numbers, tzinfo=UTC)  # type: ignore[arg-type,misc]
    except ValueError:  # 29 February of another year
        return None
    return moment.timestamp() - ahead + (float(f"0.{fraction}") if fraction else 0.0)
