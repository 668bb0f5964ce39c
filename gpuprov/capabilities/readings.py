"""`readings`: the host records at intervals what has changed on it, without a daemon, so that `gpuprov drift` can date
changes, and `gpuprov health` knows how fast error counters grow."""

import hashlib
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal, get_args

import msgspec

from gpuprov.capabilities.answers import HEADER
from gpuprov.capabilities.base import Capability, Context, Desired, Outcome, Resources, check, fail, ok
from gpuprov.capabilities.tasks import Stages, step, unit
from gpuprov.capabilities.tasks import files as files_task
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.host.readings import PROGRAM, READINGS, SERVICE, TIMER
from gpuprov.host_code import readings as onhost
from gpuprov.host_code.files import PYTHON
from gpuprov.host_code.json_members import Json
from gpuprov.resources import File, Resource, Unit, role_values
from gpuprov.spec.model import Fragment

FOLDER = "/etc/systemd/system"
# systemd's calendar event of each interval, and its seconds.
CALENDAR: Mapping[str, tuple[str, int]] = {
    "15min": ("*:0/15", 900),
    "hourly": ("hourly", 3600),
    "daily": ("daily", 86400),
}
# Intervals without a reading after which something is wrong: the timer has a random delay of at most a tenth of an
# interval.
LATE = 2
Every = Literal["15min", "hourly", "daily"]


class Readings(Fragment, frozen=True):
    """Readings of everything that gpuprov and a driver depend on: files, units, modules, packages, the kernel."""

    every: Annotated[
        Every, msgspec.Meta(description="how often a reading is taken: a change is known to within this time")
    ] = "hourly"
    keep_days: Annotated[int, msgspec.Meta(ge=1, le=3650, description="days for which the host keeps what changed")] = (
        90
    )


Ctx = Context[Readings]


def files(block: Readings) -> tuple[dict[str, str], dict[str, str]]:
    """Return programs and units, text by path."""
    calendar, seconds = CALENDAR[block.every]
    service = f"""{HEADER}[Unit]
Description=A reading of this host, for gpuprov drift and health

[Service]
Type=oneshot
ExecStart={PYTHON} -B {PROGRAM} {block.keep_days}
TimeoutStartSec=300
Nice=19
IOSchedulingClass=idle
RestrictAddressFamilies=AF_UNIX
ProtectHome=true
NoNewPrivileges=true
"""
    timer = f"""{HEADER}[Unit]
Description=Readings of this host, for gpuprov drift and health

[Timer]
OnCalendar={calendar}
RandomizedDelaySec={seconds // 10}
Persistent=true

[Install]
WantedBy=timers.target
"""
    program = Path(onhost.__file__).read_text(encoding="utf-8")
    return {PROGRAM: program}, {f"{FOLDER}/{SERVICE}": service, f"{FOLDER}/{TIMER}": timer}


def _compute_sum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@check(
    "readings.taken",
    READINGS,
    fields=("every",),
    evidence=f"systemctl list-timers {TIMER}; journalctl -u {SERVICE} -n 20",
)
def taken(ctx: Ctx) -> Outcome:
    """The last reading is no older than two intervals of the host's uptime."""
    readings = ctx.facts.get(READINGS)
    limit = timedelta(seconds=LATE * CALENDAR[ctx.fragment.every][1])
    expected = f"a reading within {ctx.fragment.every} intervals"
    fix = f"journalctl -u {SERVICE} -n 20; systemctl start {SERVICE}"
    if readings.last is None:
        return fail(expected, "no reading yet", fix)
    age = readings.clock - readings.last
    if age > limit and readings.up > limit.total_seconds():
        return fail(expected, f"the last one was at {readings.last:%Y-%m-%d %H:%M} UTC", fix)
    if age < -limit:
        return fail(
            expected,
            f"the last one is dated in the future, {readings.last:%Y-%m-%d %H:%M} UTC",
            f"set the clock; {fix}",
        )
    return ok(f"the last one at {readings.last:%Y-%m-%d %H:%M} UTC")


def desired(ctx: Ctx) -> Iterator[Resource]:
    """Yield the program, the service that starts it, and the timer that starts the service."""
    programs, units = files(ctx.fragment)
    yield from (File(path, text, 0o755) for path, text in programs.items())
    yield from (File(path, text) for path, text in units.items())
    yield Unit(name=TIMER, enabled=True, active=True)


def make(ctx: Ctx) -> dict[str, Json]:
    """Return the values of its resources. The first reading is taken at once, if there is none."""
    fix = f"see journalctl -u {SERVICE} on the host"
    first = {"command": {"argv": ["systemctl", "start", SERVICE], "fix": fix}}
    return {
        **role_values(desired(ctx), "programs", "files", "units", "on"),
        "tasks": {
            **(first if ctx.facts.get(READINGS).last is None else {}),
            "unit": {"name": TIMER, "state": "started"},
        },
    }


TASKS: Stages = {
    "configure": (
        files_task("Install the readings program and its timer", shows=False, why="A program is not a setting."),
    ),
    "service": (step("Take the first reading", "command"), unit("Start the timer")),
}


def export(facts: Facts) -> Fragment | None:
    readings = facts.get(READINGS)
    if readings.timer != "enabled" or readings.keep_days is None:
        return None
    sums: dict[str, Every] = {
        _compute_sum(files(Readings(every=every))[1][f"{FOLDER}/{TIMER}"]): every for every in get_args(Every)
    }
    every = sums.get(readings.files.get(f"{FOLDER}/{TIMER}", ""))
    return Readings(every=every, keep_days=readings.keep_days) if every else None


CAPABILITY = Capability(
    name="readings",
    summary="readings that the host keeps of itself, by which gpuprov drift says when something changed",
    fragment=Readings,
    checks=(taken,),
    export=export,
    export_probes=(READINGS,),
    tasks=TASKS,
    desired=Desired((READINGS,), make),
    resources=Resources(
        desired,
        lambda _host, block: [path for texts in files(block) for path in texts],
        units=lambda _host, _block: (TIMER,),
        proves={"files": ("every", "keep_days"), "enabled": ("every",), "active": ("every",)},
    ),
    driverless=True,
)
