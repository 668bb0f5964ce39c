"""A unit as a probe reads it beside other things, and gpuprov's own units that set something at each boot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec


class UnitState(msgspec.Struct, frozen=True, kw_only=True):
    """LoadState, ActiveState and UnitFileState."""

    load: str = "not-found"
    active: str = "inactive"
    file: str = ""


class SetsAtBoot(UnitState, frozen=True, kw_only=True):
    """`config`: the lines of its configuration (None: no such file)."""

    config: tuple[str, ...] | None = None


STATE = "systemctl show -p LoadState -p ActiveState -p UnitFileState $u 2>/dev/null | tr = '|'\n"
"""Prints how systemd has the unit $u."""
BLANK = r"LoadState\|"
"""What a script with STATE prints where there is no such unit."""


def script(unit: str, config: str) -> str:
    """Prints a unit of gpuprov's, and the lines of its configuration."""
    return f"""u={unit} c={config}
[ -e $c ] && echo 'config|' && sed -n 's/^[a-z]/config|&/p' $c
{STATE}"""


def state(rows: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The fields of UnitState, of what STATE prints."""
    load, active, file = ((rows.get(name) or [""])[-1] for name in ("LoadState", "ActiveState", "UnitFileState"))
    return {"load": load or "not-found", "active": active or "inactive", "file": file}


def parse(rows: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The fields of SetsAtBoot, of what the script prints."""
    return {
        **state(rows),
        "config": tuple(line for line in rows["config"] if line) if "config" in rows else None,
    }
