"""The tasks of the role."""

from gpuprov.capabilities.tasks import Stages, files, step, unit

TASKS: Stages = {
    "configure": (files("Write modprobe, sysctl, limits and module files", key="files"),),
    "boot": (
        step(
            "Rebuild outdated initramfs images and boot entries",
            "boot",
            takes={"written": "files.paths"},
            why="At the end of act 2, once, after all that goes into an initramfs.",
        ),
    ),
    "service": (
        step("Apply settings to the running kernel", "running_kernel"),
        unit("Set the CPU governor by its unit"),
    ),
}
