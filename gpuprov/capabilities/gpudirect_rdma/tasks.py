"""The tasks of the role."""

from __future__ import annotations

from gpuprov.capabilities.tasks import (
    Stages,
    Task,
    files,
    judge,
    judge_after_driver,
    packages,
    report,
    step,
    taken,
    try_packages,
)

NOW = judge("Evaluate again, after rdma and nvidia_driver", "now")

TASKS: Stages = {
    "assert": (
        judge_after_driver(),
        report("Report the method", "method"),
        try_packages(part="gdrcopy"),
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
