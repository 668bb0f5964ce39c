"""The tasks of the role."""

from gpuprov.capabilities.tasks import Stages, files, judge, packages, step, try_packages

TASKS: Stages = {
    "assert": (step("Fetch the archive of HPC-X", "fetch", prepares="once"), try_packages()),
    "install": (
        judge("Evaluate again, with what doca-ofed brought", "now"),
        packages("Install Open MPI and UCX", "install"),
        step("Unpack HPC-X", "hpcx"),
    ),
    "configure": (
        judge("Evaluate again, with the packages and HPC-X in place", "now"),
        packages("Hold or release Open MPI and UCX", "hold", part="held"),
        files("Write the module of HPC-X, and let the linker find NCCL's plugin"),
        step("Update the linker's cache", "command", each="argv"),
    ),
}
