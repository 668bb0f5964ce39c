"""The tasks of the role."""

from gpuprov.capabilities.tasks import Stages, daemon, files, step

TASKS: Stages = {
    "configure": (
        files(
            "Write the programs, slurmd's drop-in and the line of cgroup.conf",
            why="Slurm itself, and slurm.conf, are the cluster's: without them the host is refused before anything "
            "is changed.",
        ),
    ),
    "service": (step("Write gres.conf", "slurm"), daemon("Have a running slurmd read its files")),
}
