"""Alibaba's cGPU as files: what a container shows at /proc/cgpu_km. Behind them is no module, and so nobody judges what is written."""

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
    """The files, made anew at each boot, and the library by which programs find them in /proc; nothing where none is asked for."""
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
