"""The tasks of the role."""

from gpuprov.capabilities.tasks import (
    Block,
    Stages,
    daemon,
    files,
    judge,
    judge_after_driver,
    packages,
    report,
    start_clients,
    step,
    stop_clients,
    try_packages,
)

KEEPS = (
    "the GPUs were not reset, and keep their registration with the fabric. If fabric_manager.registered fails "
    "now, reboot the host"
)
MAY_HOLD = (
    "the GPUs were not reset after Fabric Manager's start, and may hold partitions of a run before. "
    "Fix: free them and say nvidia-smi -r, or reboot the host"
)

TASKS: Stages = {
    "assert": (
        judge_after_driver(),
        step(
            "Refuse if a user's process holds a GPU",
            "clients",
            "replace",
            {"state": "free", "services": "{{ gpuprov_services }}"},
            when="gpuprov_drain_command | default('', true) == ''",
        ),
        try_packages(),
    ),
    "install": (
        judge("Evaluate again, with the installed driver", "now"),
        Block(
            title="Replace Fabric Manager",
            tasks=(
                stop_clients("Stop services that hold GPUs", "replace", checks=False),
                packages("Install and hold the Fabric Manager packages"),
            ),
        ),
    ),
    "configure": (files("Configure Fabric Manager and IMEX"),),
    "service": (
        judge(
            "Evaluate again, with the daemon and the loaded driver",
            "now",
            "nvidia_driver goes before: it may have loaded the driver by now.",
        ),
        files(
            "Enable or disable the unit",
            part="runtime",
            why="Under Kubernetes each ComputeDomain starts a daemon of its own, which the host's would be in the "
            "way of.",
        ),
        report("Report what it waits for", "waits"),
        Block(
            title="Start the daemon",
            tasks=(
                stop_clients("Stop services that hold GPUs, Fabric Manager last"),
                step(
                    "Reset the GPUs, to register with the fabric again", "command", "reset_before", {"tolerate": KEEPS}
                ),
                daemon("Start or restart the daemon"),
                step("Reset the GPUs, to clear old partitions", "command", "reset_after", {"tolerate": MAY_HOLD}),
            ),
            key="unit",
        ),
        start_clients("Restart what was stopped", "start"),
    ),
}
