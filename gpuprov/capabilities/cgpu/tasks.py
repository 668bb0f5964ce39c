"""The tasks of the role."""

from gpuprov.capabilities.tasks import Stages, files, unit

TASKS: Stages = {
    "configure": (
        files(
            "Write the settings and the unit that applies them at boot",
            why="cGPU itself is Alibaba's to install: without it, the host is refused before anything is changed.",
        ),
    ),
    "service": (unit("Set up cGPU by its unit"),),
}
