"""The tasks of the role."""

from __future__ import annotations

from gpuprov.capabilities.tasks import Stages, files, judge, packages, unit

TASKS: Stages = {
    "assert": (
        judge(
            "Evaluate again, with the package sources and the driver as they will be",
            "sources",
            "nvidia_driver goes before: it may have added a package source, and knows its version by now.",
        ),
        packages("Simulate the package transaction and download it", "try"),
    ),
    "install": (packages("Install the DCGM packages", "install"),),
    "configure": (
        packages(
            "Hold or release the DCGM packages",
            "hold",
            why="Only here: what came along with the packages that were asked for has been seen now.",
        ),
        files("Write drop-ins for the units"),
    ),
    "service": (unit("Start the DCGM host engine and exporter, now and at boot", each="name"),),
}
