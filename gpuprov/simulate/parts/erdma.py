"""Alibaba's eRDMA on a simulated container: PCI function, network interface, and what a driver shows in sysfs.

A container loads no module. `modprobe erdma` and `rmmod erdma` are answered by a program that shows what a loaded driver would show,
in the mode that modprobe's options and the module's own default give; every other module is left to the real programs.
"""

from __future__ import annotations

from pathlib import Path

from gpuprov.simulate.description import Description
from gpuprov.simulate.parts.base import PROGRAMS, File, Part

FOLDER = Path(__file__).with_name("erdma_files")
UNIT = "gpuprov-sim-erdma.service"


def part(_name: str, description: Description) -> Part:
    """The function, its interface, and the programs that stand before modprobe and rmmod; nothing where none is asked for."""
    if not description.erdma:
        return Part()
    return Part(
        files={
            f"{PROGRAMS}/erdma": File(FOLDER / "erdma.py", 0o755),
            "/usr/local/sbin/modprobe": File(FOLDER / "modprobe", 0o755),
            "/usr/local/sbin/rmmod": File(FOLDER / "rmmod", 0o755),
            f"/etc/systemd/system/{UNIT}": File(FOLDER / UNIT),
        },
        units=(UNIT,),
    )
