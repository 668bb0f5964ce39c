"""The tasks of the role."""

from __future__ import annotations

from gpuprov.capabilities.tasks import Stages, files, judge, packages, step

TASKS: Stages = {
    "assert": (
        judge(
            "Evaluate again, with the package sources and the driver as they will be",
            "sources",
            "nvidia_driver goes before: it may have added a package source, and knows its version by now.",
        ),
        packages("Simulate the package transaction and download it", "try"),
    ),
    "install": (packages("Install the packages", "install"),),
    "configure": (
        files("Set the PATH of login shells for the default CUDA toolkit"),
        packages("Hold or release the CUDA packages", "hold"),
        step("Point /usr/local/cuda and the linker at the default toolkit", "command", each="argv"),
    ),
}
