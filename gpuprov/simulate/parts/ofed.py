"""Environment of RDMA adapters in a simulated container beside sysfs: rdma_cm's folders of configfs, which no kernel
made."""

from __future__ import annotations

from pathlib import Path

from gpuprov.simulate.description import Description
from gpuprov.simulate.parts.base import PROGRAMS, File, Part

FOLDER = Path(__file__).with_name("ofed_files")
UNIT = "gpuprov-sim-rdma-cm.service"


def part(_name: str, description: Description) -> Part:
    """Return the folders, made anew at each boot; nothing for a host without HCAs, nor for a machine, whose kernel has
    its own."""
    if not description.hcas or description.kind == "machine":
        return Part()
    return Part(
        files={
            f"{PROGRAMS}/rdma-cm": File(FOLDER / "rdma-cm", 0o755),
            f"/etc/systemd/system/{UNIT}": File(FOLDER / UNIT),
        },
        units=(UNIT,),
    )
