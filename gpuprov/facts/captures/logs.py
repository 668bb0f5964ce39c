"""Kernel logs in records, or by themselves: dmesg and journalctl in their formats, and syslog; converted to the output
of the probe of the kernel log. Of a log of several boots the last one counts: what came before is past."""

import re
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

import msgspec

from gpuprov.core import safe_parse
from gpuprov.facts.probes.kernel.kernel_log import DRIVER, KERNEL
from gpuprov.facts.probes.kernel.stamps import BETWEEN, UNTIMED, Stamped, read_stamp, resolve_deltas
from gpuprov.host_code import kernel_lines

# What journalctl prints between two boots.
BOUNDARIES = ("-- Boot ", "-- Reboot --")
# The kernel's first lines after a boot.
BEGINS = ("Linux version ", "Booting Linux on ")
_KNOWN = re.compile(f"(?:kernel: )?(?:NVRM: |{'|'.join(BEGINS)}|{DRIVER}|{KERNEL})")
_SHAPE = re.compile(r"[A-Za-z][\w .,:/()@-]{1,60}: ")
# Number of lines by which a text is taken for a log.
_LOOKED_AT = 400
# Programs whose lines name the host itself.
_HOSTS_OWN = ("kernel", "systemd", "nvidia-persistenced", "nv-fabricmanager")


# Names in lines that are older than the host's name.
_NAMELESS = frozenset(("localhost", "localhost.localdomain", "(none)"))


class _Entry(msgspec.Struct):
    """A line of `journalctl -o json`; see systemd.journal-fields(7)."""

    realtime: str = msgspec.field(name="__REALTIME_TIMESTAMP")
    message: str | list[int] | None = msgspec.field(name="MESSAGE", default=None)
    transport: str = msgspec.field(name="_TRANSPORT", default="")
    boot: str = msgspec.field(name="_BOOT_ID", default="")
    host: str = msgspec.field(name="_HOSTNAME", default="")


def unquote(text: str) -> str:
    """Return a text without what stands before all of its lines, as in a quoted message: > or blanks."""
    lines = [line for line in text.splitlines() if line.strip("> \t")]
    mark = re.match(r"[> \t]*", lines[0]) if lines else None
    if not mark or not mark[0] or not all(line.startswith(mark[0]) for line in lines):
        return text
    return "".join(f"{line.removeprefix(mark[0])}\n" for line in lines)


def is_log(text: str) -> bool:
    """Return whether most lines of a text are of a log."""
    lines = [
        line for line in text[: _LOOKED_AT * 400].splitlines()[:_LOOKED_AT] if line.strip() and line[0] not in " \t-"
    ]
    if not lines:
        return False
    stamped = sum(1 for line in resolve_deltas(lines) if _parse_entry(line) or read_stamp(line, 2000).at is not None)
    return stamped * 2 >= len(lines) or (not stamped and _is_untimed(map(read_stamp, lines)))


def _is_untimed(lines: Iterable[Stamped]) -> bool:
    """Return whether these lines are the kernel's, without a time: most say so or begin as its lines do, and gpuprov
    knows one."""
    own = [line for line in lines if line.of_kernel]
    shaped = sum(line.program == "kernel" or _SHAPE.match(line.text) is not None for line in own)
    return any(_KNOWN.match(line.text) for line in own) and shaped * 2 >= len(own)


def host(text: str) -> str:
    """Return the host whose log it is; "" if its lines do not say, or name several."""
    names = {name for line in text.splitlines()[:_LOOKED_AT] if (name := _parse_host(line))}
    names = names - _NAMELESS or names
    return names.pop() if len(names) == 1 else ""


def split_by_host(text: str) -> dict[str, str]:
    """Return the lines of each host in a log of several, as a central one is; an empty dict for a log of one.

    The names of a host with and without its domain are one, and its lines before it had its name (localhost) are its
    own. A line without a host belongs to the line before.
    """
    lines = text.splitlines()
    if not any(_parse_host(line) for line in lines[:_LOOKED_AT]):
        return {}
    owners = list(_list_owners(lines))
    names = set(owners) - {""}
    aliases = {name: longer[0] for name in names if len(longer := [o for o in names if o.startswith(f"{name}.")]) == 1}
    if len({aliases.get(name, name) for name in names - _NAMELESS}) < 2:
        return {}
    parts: dict[str, list[str]] = {}
    boots: dict[str, str] = {}
    current, boundary = "", ""
    for line, name in zip(lines, owners, strict=True):
        if line.startswith(BOUNDARIES):
            boundary = line if line.startswith(BOUNDARIES[0]) else boundary
            continue
        current = aliases.get(name, name) or current
        part = parts.setdefault(current, [])
        if name and boundary:
            if boots.get(current, boundary) != boundary:
                part.append(boundary)
            boots[current] = boundary
        part.append(line)
    parts.pop("", None)
    return {name: "\n".join(part) + "\n" for name, part in parts.items()}


def _list_owners(lines: Iterable[str]) -> Iterator[str]:
    """Yield the host of each line. What follows another of the same host is not parsed: logs have millions."""
    last = ""
    for line in lines:
        before, separator, _ = line.partition(f" {last} kernel: ")
        if last and separator and ": " not in before and len(before) < 40:
            yield last
            continue
        name = _parse_host(line)
        last = name or last
        yield name


def _parse_host(line: str) -> str:
    """Return the host that a line of the host's own programs names."""
    if entry := _parse_entry(line):
        return entry.host
    if not any(program in line for program in _HOSTS_OWN):
        return ""
    stamped = read_stamp(line, 2000)
    return stamped.host if stamped.program in _HOSTS_OWN else ""


def kernel_log(text: str, made: float = 0, *, searched: bool = False) -> str | None:
    """Convert a log to the probe's output: the kernel's lines of the last boot. None if some lack time stamps; if all
    do, their order takes the place of times.

    `made`: when the record was made, in Unix time: no line is later. A stamp without a year is from the year before
    that; without a zone it is taken for UTC. `searched`: the text has NVIDIA's lines alone.
    """
    made = made or time.time()
    lines = [line for line in _select_last_boot(_list_kernel_lines(text, made)) if line.text.strip()]
    if all(line.at is None for line in lines) and _is_untimed(lines):
        lines = [
            msgspec.structs.replace(line, at=UNTIMED + number * BETWEEN, since_boot=True)
            for number, line in enumerate(lines)
        ]
    timed = [line for line in lines if line.at is not None]
    if not timed or len(timed) * 2 < len(lines):
        return None
    from_boot = sum(line.since_boot for line in timed) * 2 > len(timed)
    rows = [_format_row(line) for line in timed if line.since_boot == from_boot]
    ends = max(line.at or 0.0 for line in timed if line.since_boot == from_boot)
    head = [
        f"now|{int(ends if from_boot or not searched else made)}",
        "boot|0",
        f"source|{'dmesg' if from_boot else 'journal'}",
    ]
    head += ["searched|"] * searched + [f"first|{rows[0]}"]
    return "".join(f"{row}\n" for row in (*head, *(f"line|{row}" for row in rows)))


def is_whole(output: str) -> bool:
    """Return whether a converted log begins with the boot."""
    first = next((row for row in output.splitlines()[:5] if row.startswith("first|")), "")
    return any(f" {words}" in first for words in BEGINS)


def is_timed(output: str) -> bool:
    """Return whether the lines of a converted log have times."""
    return f"\nfirst|[{UNTIMED:.6f}]" not in output


def _format_row(line: Stamped) -> str:
    if line.since_boot:
        return f"[{line.at:.6f}] {line.text}"
    return f"{line.at:.6f} {line.host or 'host'} kernel: {line.text}"


def _list_kernel_lines(text: str, made: float) -> Iterator[Stamped | None]:
    """Yield the kernel's lines, and None where another boot begins."""
    year = datetime.fromtimestamp(made, UTC).year
    for line in kernel_lines.join_messages(resolve_deltas(_convert_lines(text))):
        if line.startswith(BOUNDARIES):
            yield None
            continue
        stamped = read_stamp(line, year)
        if stamped.at is not None and not stamped.since_boot and stamped.at > made + 86400:
            stamped = read_stamp(line, year - 1)
        if stamped.of_kernel:
            yield stamped


def _convert_lines(text: str) -> Iterator[str]:
    """Yield the lines; those of `journalctl -o json` as journalctl prints them otherwise."""
    boot = ""
    for line in text.splitlines():
        entry = _parse_entry(line)
        if entry is None:
            yield line
            continue
        if entry.boot != boot:
            boot = entry.boot
            yield BOUNDARIES[0]
        if entry.transport == "kernel" and isinstance(entry.message, str) and safe_parse.is_whole(entry.realtime):
            message = " ".join(entry.message.splitlines())
            yield f"{int(entry.realtime) / 1e6:.6f} {entry.host or 'host'} kernel: {message}"


def _select_last_boot(lines: Iterable[Stamped | None]) -> list[Stamped]:
    kept: list[Stamped] = []
    for line in lines:
        again = line is not None and line.text.startswith(BEGINS) and not (kept and kept[-1].text.startswith(BEGINS))
        if line is None or again:
            kept = []
        if line is not None:
            kept.append(line)
    return kept


def _parse_entry(line: str) -> _Entry | None:
    if not line.startswith("{") or '"__REALTIME_TIMESTAMP"' not in line:
        return None
    try:
        return safe_parse.parse_typed_json(line, _Entry)
    except safe_parse.Unreadable:
        return None
