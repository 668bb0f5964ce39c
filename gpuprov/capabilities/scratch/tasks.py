"""The tasks of the role."""

from gpuprov.capabilities.tasks import Stages, files, packages, try_packages, unit

TASKS: Stages = {
    "assert": (try_packages(),),
    "install": (packages("Install mdadm and the file system's programs", "install"),),
    "configure": (
        files(
            "Write the unit that makes and mounts the file system at boot",
            why="A disk that holds anything is refused before anything is changed.",
        ),
    ),
    "service": (unit("Make and mount the file system by its unit"),),
}
