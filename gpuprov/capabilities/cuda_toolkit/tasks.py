"""The tasks of the role."""

from gpuprov.capabilities.tasks import Stages, files, judge_after_driver, packages, step, try_packages

TASKS: Stages = {
    "assert": (judge_after_driver(), try_packages()),
    "install": (packages("Install the packages", "install"),),
    "configure": (
        files("Set the PATH of login shells for the default CUDA toolkit"),
        packages("Hold or release the CUDA packages", "hold"),
        step("Point /usr/local/cuda and the linker at the default toolkit", "command", each="argv"),
    ),
}
