"""The tasks of the role."""

from gpuprov.capabilities.tasks import Stages, daemon, files, packages

TASKS: Stages = {
    "assert": (
        packages("Check that the package brings no other driver", "judge"),
        packages(
            "Download nvidia-persistenced",
            "files",
            key="download",
            checks=False,
            why="Without its dependencies, which the driver's set brings in its own version.",
        ),
    ),
    "install": (packages("Install nvidia-persistenced", "install"),),
    "configure": (files("Enable the persistence unit and disable the other one"),),
    "service": (daemon("Start the persistence unit"),),
}
