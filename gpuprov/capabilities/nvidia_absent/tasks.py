"""The tasks of the role."""

from gpuprov.capabilities.tasks import (
    Block,
    Stages,
    files,
    give_up,
    packages,
    start_clients,
    step,
    stop_clients,
    try_packages,
)

TASKS: Stages = {
    "assert": (try_packages(),),
    "install": (
        Block(
            title="Remove NVIDIA's software",
            tasks=(
                stop_clients("Stop services that hold GPUs", checks=False),
                step("Unload the driver", "driver_loaded", "unload_first", {"state": "out"}, checks=False),
                step(
                    "Run the uninstaller of NVIDIA's runfile",
                    "driver_runfile",
                    "uninstall",
                    {"state": "removed"},
                    why="Before the packages: Debian's nvidia-installer-cleanup has a question about it.",
                ),
                packages("Remove the packages and release their holds"),
            ),
            undo=give_up("Load the driver again, restart what was stopped and report the failure", {"driver": True}),
        ),
    ),
    "configure": (
        files("Remove gpuprov's records and package sources of the driver"),
        step("Unload what is still loaded, or request a reboot", "unload", arguments={"capability": "nvidia_absent"}),
        step("Forget the modules that were unloaded", "driver_loaded", "forget", {"state": "loaded"}, checks=False),
        step("Rebuild initramfs images with NVIDIA's modules", "boot", "images"),
    ),
    "service": (start_clients("Restart what was stopped, apart from NVIDIA's services", "start"),),
}
