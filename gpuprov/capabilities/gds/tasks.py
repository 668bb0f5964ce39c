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
    "install": (packages("Install GPUDirect Storage", "install"),),
    "configure": (
        files("Set what cuFile reads"),
        step("Let /etc/cufile.json lead to the release's file", "command", each="argv"),
    ),
    "service": (
        judge("Evaluate again, after nvidia_driver", "now"),
        step("Load nvidia_fs", "running_kernel"),
    ),
}
