"""Alibaba's cGPU as files: the content of /proc/cgpu_km in a container. There is no module behind them, so writes are
not validated."""

from __future__ import annotations

from pathlib import Path

from gpuprov.simulate.description import Description
from gpuprov.simulate.parts.base import PROGRAMS, File, Part

FOLDER = Path(__file__).with_name("cgpu_files")
UNIT = "gpuprov-sim-cgpu.service"
LIBRARY = f"{PROGRAMS}/cgpu-procfs.so"
PRELOAD = "/etc/ld.so.preload"
# Written to the list when it is whole: a library on it that cannot be loaded is a warning of every program.
SCRIPT = f"""\
gcc -std=gnu11 -O2 -Wall -Wextra -Werror -fPIC -shared -o {LIBRARY}.new {PROGRAMS}/cgpu-procfs.c -ldl
mv {LIBRARY}.new {LIBRARY}
grep -qsx {LIBRARY} {PRELOAD} || echo {LIBRARY} >> {PRELOAD}
"""


def part(_name: str, description: Description) -> Part:
    """Return the files, made anew at each boot, and the library that lets programs see them in /proc; nothing if cGPU
    is not requested."""
    if not description.cgpu:
        return Part()
    return Part(
        files={
            f"{PROGRAMS}/cgpu": File(FOLDER / "cgpu", 0o755),
            f"{PROGRAMS}/cgpu-procfs.c": File(FOLDER / "procfs.c"),
            f"/etc/systemd/system/{UNIT}": File(FOLDER / UNIT),
        },
        script=SCRIPT,
        units=(UNIT,),
    )
