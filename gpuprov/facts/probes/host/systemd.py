"""Units and limits of systemd, and gpuprov's own units that apply settings at each boot."""

import re
from collections.abc import Mapping, Sequence
from typing import TypedDict

import msgspec

from gpuprov.facts.probes.base import Output, Probe


class Unit(msgspec.Struct, frozen=True):
    """`load` is `not-found` for a unit that does not exist; `file` is what `systemctl is-enabled` prints; `start` is
    its command, as systemd shows it."""

    name: str
    load: str
    active: str
    file: str
    start: str = ""


MISSING = Unit("", "not-found", "inactive", "")

# Units that several capabilities need. A capability with other units has a probe of its own: `build_units_probe`.
UNITS = ("nvidia-persistenced.service", "gpuprov-persistence.service", "nvidia-fabricmanager.service")

# Shell function `unit_of FILE`: the unit of a process by its cgroup file, as `gpuprov.host_code.mig.units` finds it.
UNIT_OF = r"""r=$(sed -n 's#^[0-9]*:\(name=systemd\)\{0,1\}:\(.*\)/init\.scope$#\2#p' /proc/1/cgroup 2>/dev/null |
  head -n 1)
unit_of() {
  R=$r awk -F: '$2 == "" || $2 == "name=systemd" { sub("^[0-9]*:[^:]*:", ""); r = ENVIRON["R"] "/"; u = ""
    if (index($0, r) == 1) $0 = substr($0, length(r))
    gsub(/[|]/, "_"); n = split($0, p, "/")
    for (i = 2; i <= n; i++) if (p[i] ~ /\.(service|scope)$/) u = u (u == "" ? "" : "/") p[i]
    if (u != "") { print u; exit } }' "$1"
}
"""


class Units(dict[str, Unit]):
    """Units by name. A unit that was requested and that systemd does not report is MISSING; looking up a unit that the
    probe never requests is a defect of the check."""

    def __init__(self, requested: Sequence[str], units: Mapping[str, Unit]) -> None:
        super().__init__({**dict.fromkeys(requested, MISSING), **units})

    def __missing__(self, name: str) -> Unit:
        raise UnknownUnit(f"no probe reads the unit {name}: it is not among {', '.join(self)}")


class UnknownUnit(Exception):
    """A unit was looked up that the probe does not request: a defect in gpuprov."""


def parse_units(output: Output) -> dict[str, Unit]:
    units = {}
    # `systemctl show -p ...` of several units: a block each, with an empty line between them:
    #     Id=nvidia-persistenced.service
    #     LoadState=loaded
    #     ActiveState=failed
    #     UnitFileState=enabled
    for block in output.text.split("\n\n"):
        values = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if "Id" in values:
            units[values["Id"]] = Unit(
                values["Id"],
                values.get("LoadState", ""),
                values.get("ActiveState", ""),
                values.get("UnitFileState", ""),
                values.get("ExecStart", ""),
            )
    return units


class BootTarget(msgspec.Struct, frozen=True):
    """The target that a boot goes to, empty where systemd does not say, and the units that set up every boot but are
    masked."""

    name: str = ""
    masked: tuple[str, ...] = ()


def parse_target(output: Output) -> BootTarget:
    masked = tuple(output.rows().get("masked", []))
    name = "".join(line for line in output.text.splitlines() if not line.startswith("masked|")).strip()
    if name and not re.fullmatch(r"[A-Za-z0-9:_.@\\-]{1,250}\.target", name):
        raise ValueError(f"systemctl get-default printed {name[:60]!r}")
    return BootTarget(name, masked)


# systemd's output for no limit, before version 230.
NO_LIMIT = str(2**64 - 1)


def parse_limits(output: Output) -> dict[str, str]:
    pairs = (line.split("=", 1) for line in output.text.splitlines() if line.startswith("DefaultLimit"))
    return {
        key.removeprefix("DefaultLimit").lower(): "infinity" if value.strip() == NO_LIMIT else value.strip()
        for key, value in pairs
    }


def build_units_probe(name: str, units: Sequence[str], evidence: str) -> Probe[Units]:
    """Return a probe of these units."""
    script = f"systemctl show -p Id -p LoadState -p ActiveState -p UnitFileState -p ExecStart {' '.join(units)}"
    return Probe(name, script, lambda output: Units(units, parse_units(output)), evidence, speaks=True)


SYSTEMD_UNITS = build_units_probe("units", UNITS, "systemctl status 'nvidia-*'")
# Resource limits of services by lower-case name (`memlock`), `infinity` for no limit; `memlocksoft` is the soft limit.
DEFAULT_LIMITS = Probe(
    "default_limits", "systemctl show | grep ^DefaultLimit", parse_limits, "systemctl show | grep DefaultLimit"
)
# Units of every boot, of which the first four put into effect what modules-load.d, sysctl.d, modprobe.d and udev's
# rules say.
SET_UP = (
    *(
        "systemd-modules-load.service",
        "systemd-sysctl.service",
        "systemd-udevd.service",
        "systemd-udev-trigger.service",
    ),
    *("sysinit.target", "basic.target", "multi-user.target"),
)
BOOT_TARGET = Probe(
    "boot_target",
    f"""systemctl get-default 2>/dev/null
systemctl show -p Id -p UnitFileState {" ".join(SET_UP)} 2>/dev/null | while IFS='=' read -r k v; do
  case $k=$v in Id=*) u=$v ;; UnitFileState=masked) echo "masked|$u" ;; esac
done; true""",
    parse_target,
    f"systemctl get-default; systemctl is-enabled {' '.join(SET_UP[:4])}",
)


class UnitState(msgspec.Struct, frozen=True, kw_only=True):
    """LoadState, ActiveState and UnitFileState."""

    load: str = "not-found"
    active: str = "inactive"
    file: str = ""


class SetsAtBoot(UnitState, frozen=True, kw_only=True):
    """A unit of gpuprov's."""

    # The lines of its configuration (None: no such file).
    config: tuple[str, ...] | None = None


class State(TypedDict):
    """The fields of UnitState."""

    load: str
    active: str
    file: str


class AtBoot(State):
    """The fields of SetsAtBoot."""

    config: tuple[str, ...] | None


# Shell: prints systemd's state of the unit $u.
STATE = "systemctl show -p LoadState -p ActiveState -p UnitFileState $u 2>/dev/null | tr = '|'\n"
# Output of a script with STATE if there is no such unit.
BLANK = r"LoadState\|"


def build_script(unit: str, config: str) -> str:
    """Return shell that prints the state of a gpuprov unit, and the lines of its configuration."""
    return f"""u={unit} c={config}
[ -e $c ] && echo 'config|' && sed -n 's/^[a-z]/config|&/p' $c
{STATE}"""


def parse_state(rows: Mapping[str, Sequence[str]]) -> State:
    """Parse the output of STATE into the fields of UnitState."""
    load, active, file = ((rows.get(name) or [""])[-1] for name in ("LoadState", "ActiveState", "UnitFileState"))
    return {"load": load or "not-found", "active": active or "inactive", "file": file}


def parse(rows: Mapping[str, Sequence[str]]) -> AtBoot:
    """Parse the output of `build_script` into the fields of SetsAtBoot."""
    return {**parse_state(rows), "config": tuple(line for line in rows["config"] if line) if "config" in rows else None}
