"""What a host tells of its own readings."""

from __future__ import annotations

import hashlib
import json

from gpuprov.capabilities.readings import Readings, files
from gpuprov.facts.probes.host.readings import PROGRAM, SERVICE, TIMER

CLOCK = "2026-11-24T12:00:00Z"

START = f"@start ExecStart={{ path=/usr/bin/python3 ; argv[]=/usr/bin/python3 -B {PROGRAM} 90 ; ignore_errors=no }}"
NEVER = f"@clock {CLOCK}\n@up 900000.25\n@unit UnitFileState=\n@unit ActiveState=inactive\n@start ExecStart=\n"


def told(
    last: str = "2026-11-24T11:05:00Z", up: int = 900000, timer: str = "enabled", active: str = "active", *lines: object
) -> str:
    """The probe's output, of a host whose files are what apply writes by default."""
    programs, units = files(Readings())
    sums = [f"@sum {hashlib.sha256(text.encode()).hexdigest()}  {path}" for path, text in {**programs, **units}.items()]
    found = [
        f"@clock {CLOCK}",
        f"@up {up}.25",
        f"@unit UnitFileState={timer}",
        f"@unit ActiveState={active}",
        START,
        *sums,
    ]
    found += [f"@last {last}"] if last else []
    return "\n".join([*found, *(line if isinstance(line, str) else json.dumps(line) for line in lines)]) + "\n"


__all__ = ["CLOCK", "NEVER", "PROGRAM", "SERVICE", "TIMER", "told"]
