"""Units and limits as systemd has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from gpuprov.probe.base import Output, Probe


class Unit(msgspec.Struct, frozen=True):
    """`load` is `not-found` for a unit that does not exist; `file` is what `systemctl is-enabled` prints; `start` is its command,
    as systemd shows it."""

    name: str
    load: str
    active: str
    file: str
    start: str = ""


MISSING = Unit("", "not-found", "inactive", "")

UNITS = ("nvidia-persistenced.service", "gpuprov-persistence.service", "nvidia-fabricmanager.service")
"""Those of `units`. A capability with other units has a probe of its own for them: `of_units`."""

UNIT_OF = r"""r=$(sed -n 's#^[0-9]*:\(name=systemd\)\{0,1\}:\(.*\)/init\.scope$#\2#p' /proc/1/cgroup 2>/dev/null | head -n 1)
unit_of() {
  R=$r awk -F: '$2 == "" || $2 == "name=systemd" { sub("^[0-9]*:[^:]*:", ""); r = ENVIRON["R"] "/"; u = ""
    if (index($0, r) == 1) $0 = substr($0, length(r))
    gsub(/[|]/, "_"); n = split($0, p, "/")
    for (i = 2; i <= n; i++) if (p[i] ~ /\.(service|scope)$/) u = u (u == "" ? "" : "/") p[i]
    if (u != "") { print u; exit } }' "$1"
}
"""
"""The function `unit_of FILE`: what `gpuprov.onhost.mig.units` says of a process, in shell, of its cgroup file."""


class Units(dict[str, Unit]):
    """Units by name. One that was asked for and of which systemd says nothing is MISSING; one that no probe asks for is a mistake of
    the check's, which would never find it."""

    def __init__(self, asked: Sequence[str], told: Mapping[str, Unit]) -> None:
        super().__init__({**dict.fromkeys(asked, MISSING), **told})

    def __missing__(self, name: str) -> Unit:
        raise UnknownUnit(f"no probe reads the unit {name}: it is not among {', '.join(self)}")


class UnknownUnit(Exception):
    """A unit that is looked up and that the probe does not ask for: a defect of gpuprov's."""


def parse_units(output: Output) -> dict[str, Unit]:
    units = {}
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


NO_LIMIT = str(2**64 - 1)
"""How systemd before 230 shows that there is none."""


def parse_limits(output: Output) -> dict[str, str]:
    pairs = (line.split("=", 1) for line in output.text.splitlines() if line.startswith("DefaultLimit"))
    return {
        key.removeprefix("DefaultLimit").lower(): "infinity" if value.strip() == NO_LIMIT else value.strip()
        for key, value in pairs
    }


def of_units(name: str, units: Sequence[str], evidence: str) -> Probe[Units]:
    """A probe of these units."""
    script = f"systemctl show -p Id -p LoadState -p ActiveState -p UnitFileState -p ExecStart {' '.join(units)}"
    return Probe(name, script, lambda output: Units(units, parse_units(output)), evidence, speaks=True)


SYSTEMD_UNITS = of_units("units", UNITS, "systemctl status 'nvidia-*'")
DEFAULT_LIMITS = Probe(
    "default_limits", "systemctl show | grep ^DefaultLimit", parse_limits, "systemctl show | grep DefaultLimit"
)
"""Resource limits of services by lower-case name (`memlock`), `infinity` where there is none; `memlocksoft` are the soft ones."""
