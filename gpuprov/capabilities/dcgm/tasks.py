"""The tasks of the role."""

from gpuprov.capabilities.tasks import Stages, daemon, files, judge_after_driver, packages, try_packages

TASKS: Stages = {
    "assert": (judge_after_driver(), try_packages()),
    "install": (packages("Install the DCGM packages", "install"),),
    "configure": (
        packages(
            "Hold or release the DCGM packages",
            "hold",
            why="Only here: what came along with the packages that were asked for has been seen now.",
        ),
        files("Write drop-ins for the units"),
    ),
    "service": (daemon("Start the DCGM host engine and exporter, now and at boot", each="name"),),
}
