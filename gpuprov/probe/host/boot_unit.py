"""A unit as a probe reads it beside other things, and gpuprov's own units that set something at each boot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gpuprov.onhost.files import ABOVE


class UnitState(msgspec.Struct, frozen=True, kw_only=True):
    """LoadState, ActiveState and UnitFileState."""

    load: str = "not-found"
    active: str = "inactive"
    file: str = ""


class SetsAtBoot(UnitState, frozen=True, kw_only=True):
    """`config`: the lines of its configuration (None: no such file). `log`: its last lines in the journal. `gone`: files of its
    command that are not there."""

    config: tuple[str, ...] | None = None
    log: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()


STATE = "systemctl show -p LoadState -p ActiveState -p UnitFileState $u 2>/dev/null | tr = '|'\n"
"""Prints how systemd has the unit $u."""
BLANK = r"LoadState\|"
"""What a script with STATE prints where there is no such unit."""
GONE = r"""w=""
for f in $(systemctl show -p ExecStart --value $u 2>/dev/null | sed -n 's/.*argv\[\]=\([^;]*\);.*/\1/p'); do
  [ "$w" != -m ] || case $f in *.*) f=@/$(echo "$f" | tr . /).py ;; *) f=@/$f/__main__.py ;; esac
  case $f in /*) [ -e "$f" ] || echo "gone|$f" ;; esac
  w=$f
done
""".replace("@", ABOVE)
"""Lines `gone|FILE`: what the command of the unit $u is made of and is not there, its Python or the module that this runs."""


def script(unit: str, config: str, lines: str, last: int = 4) -> str:
    """Prints a unit of gpuprov's; `lines`: how those of its configuration begin. The journal is not searched for one that is not
    there."""
    return f"""u={unit} c={config}
[ -e $c ] && echo 'config|' && sed -n 's/^{lines}/config|&/p' $c
s=$({STATE.strip()})
echo "$s"
case $s in *not-found*) ;; *)
{GONE}journalctl -q --no-pager -o cat -n {last} -u $u 2>/dev/null | sed 's/^/log|/' ;;
esac
"""


def state(rows: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The fields of UnitState, of what STATE prints."""
    load, active, file = ((rows.get(name) or [""])[-1] for name in ("LoadState", "ActiveState", "UnitFileState"))
    return {"load": load or "not-found", "active": active or "inactive", "file": file}


def parse(rows: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The fields of SetsAtBoot, of what the script prints."""
    return {
        **state(rows),
        "config": tuple(line for line in rows["config"] if line) if "config" in rows else None,
        "log": tuple(rows.get("log", ())),
        "gone": tuple(rows.get("gone", ())),
    }
