"""Drift readings that a host takes of itself: the time of the last one, changes between readings, and the service that
takes them."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from gpuprov.core.safe_parse import Unreadable, parse_typed_json
from gpuprov.facts.probes.base import Output, Probe
from gpuprov.host_code.readings import CHANGES, FOLDER, LAST

PROGRAM = "/usr/local/lib/gpuprov/readings.py"
SERVICE, TIMER = "gpuprov-readings.service", "gpuprov-readings.timer"
_STARTED = re.compile(re.escape(PROGRAM) + r" ([0-9]{1,5})\b")


class Line(msgspec.Struct, frozen=True):
    """One reading with changes, as stored on the host."""

    to: str
    begin: str = msgspec.field(default="", name="from")
    changed: dict[str, list[str | int]] = {}
    lost: str = ""


class Noted(msgspec.Struct, frozen=True, kw_only=True):
    """A change after the reading `begin` and before the reading `end`."""

    begin: datetime
    end: datetime
    # file, unit, module, package or kernel.
    kind: str
    name: str
    before: str = ""
    after: str = ""
    # A file's modification time, if it lies between the two: a restored file keeps an older one.
    at: datetime | None = None
    owner: int | None = None


class Readings(msgspec.Struct, frozen=True, kw_only=True):
    """`clock` and `up`: the host's time, and seconds since its boot. `keep_days`: the option with which the service
    starts the program. `last`: time of the last reading; None: none was taken yet."""

    clock: datetime
    up: float = 0
    timer: str = ""
    active: str = ""
    keep_days: int | None = None
    files: dict[str, str] = {}
    last: datetime | None = None
    noted: tuple[Noted, ...] = ()
    lost: str = ""


def parse(output: Output) -> Readings:
    """Parse lines of `@KIND VALUE`, and the readings themselves, each a line of JSON."""
    files: dict[str, str] = {}
    values = {"clock": "", "up": "0", "last": "", "start": ""}
    timer = {"UnitFileState": "", "ActiveState": ""}
    for kind, value in re.findall(r"^@(\w+) (.*)$", output.text, re.MULTILINE):
        if kind == "sum":
            digest, _, path = value.partition("  ")
            files[path] = digest
        elif kind == "unit":
            name, _, state = value.partition("=")
            timer[name] = state
        else:
            values[kind] = value
    if not values["clock"]:
        raise ValueError("the host's clock is not told")
    noted, lost = _parse_noted(line for line in output.text.splitlines() if line.startswith("{"))
    option = _STARTED.search(values["start"])
    return Readings(
        clock=parse_time(values["clock"]),
        up=float(values["up"]),
        timer=timer["UnitFileState"],
        active=timer["ActiveState"],
        keep_days=int(option[1]) if option else None,
        files=files,
        last=parse_time(values["last"]) if values["last"] else None,
        noted=noted,
        lost=lost,
    )


def _parse_noted(lines: Iterable[str]) -> tuple[tuple[Noted, ...], str]:
    """Return the changes, and why some are lost; empty if none is."""
    noted: list[Noted] = []
    lost = ""
    for line in lines:
        try:
            entry = parse_typed_json(line, Line)
            noted += _list_changes(entry)
            lost = entry.lost or lost
        except (Unreadable, ValueError) as error:
            lost = f"a line of {CHANGES} cannot be read: {error}"
    return tuple(noted), lost


def _list_changes(line: Line) -> list[Noted]:
    if not line.begin:
        return []
    begin, end = parse_time(line.begin), parse_time(line.to)
    noted = []
    for key, values in line.changed.items():
        kind, _, name = key.partition(":")
        before, after, stamp, owner = [*values, *[None] * 4][:4]
        at = datetime.fromtimestamp(stamp, begin.tzinfo) if isinstance(stamp, int) and 0 < stamp < 1 << 34 else None
        noted.append(
            Noted(
                begin=begin,
                end=end,
                kind=kind,
                name=name or kind,
                before=str(before or ""),
                after=str(after or ""),
                at=at if at and begin <= at <= end else None,
                owner=owner if isinstance(owner, int) else None,
            )
        )
    return noted


def parse_time(text: str) -> datetime:
    """Parse a time; UTC if the zone is missing."""
    then = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
    return then if then.tzinfo else then.replace(tzinfo=UTC)


# The latest changes, within limits.
READINGS = Probe(
    "readings",
    f"""date -u '+@clock %Y-%m-%dT%H:%M:%SZ'; read -r u _ < /proc/uptime && echo "@up $u"
systemctl show -p UnitFileState -p ActiveState {TIMER} | sed 's/^/@unit /'
systemctl show -p ExecStart {SERVICE} | sed 's/^/@start /'
sha256sum {PROGRAM} /etc/systemd/system/{SERVICE} /etc/systemd/system/{TIMER} 2>/dev/null | sed 's/^/@sum /'
cd {FOLDER} 2>/dev/null || exit 0
sed -n 's/^{{"at": "\\([0-9TZ:-]*\\)".*/@last \\1/p' {LAST} 2>/dev/null | head -n 1
tail -c 300000 {CHANGES} 2>/dev/null | tr -d '\\000' | grep -a '^{{' | tail -n 2000; true""",
    parse,
    f"journalctl -u {SERVICE}; less {FOLDER}/{CHANGES}",
    speaks=True,
    blank="@clock |@up |@unit |@start ",
)
