"""The tasks of the role."""

from __future__ import annotations

from gpuprov.capabilities.tasks import Stages, Task, files, judge, packages, report, step, taken

NOW = judge("Evaluate again, after rdma and nvidia_driver", "now")

TASKS: Stages = {
    "assert": (
        judge(
            "Evaluate again, with the package sources and the driver as they will be",
            "sources",
            "nvidia_driver goes before: it may have added a package source, and knows its version by now.",
        ),
        report("Report the method", "method"),
        packages("Simulate the package transaction and download it", "try", part="gdrcopy"),
    ),
    "install": (
        NOW,
        step(
            "Rebuild the peer memory modules",
            "peer_build",
            why='A module that was built without peer memory answers every modprobe with "Invalid argument".',
        ),
        packages("Install gdrcopy", "install", part="gdrcopy"),
    ),
    "configure": (files("Load the peer memory module at boot, or not"),),
    "service": (
        NOW,
        step("Load the peer memory module", "peer_memory"),
        Task(
            title="Start gdrcopy's service",
            module="ansible.builtin.systemd_service",
            options={**taken("name"), "state": "restarted"},
            key="gdrcopy",
        ),
    ),
}
