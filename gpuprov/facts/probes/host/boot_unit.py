"""The state of a systemd unit as part of a larger probe, and gpuprov's own units that apply settings at each boot."""

from collections.abc import Mapping, Sequence
from typing import TypedDict

import msgspec


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
