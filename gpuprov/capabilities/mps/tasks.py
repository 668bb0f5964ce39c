"""The tasks of the role."""

from __future__ import annotations

from gpuprov.capabilities.tasks import Stages, files, packages, plain_step, step, try_packages

TASKS: Stages = {
    "assert": (try_packages(),),
    "install": (packages("Install the MPS programs", "install"),),
    "configure": (
        files("Write the MPS units, configuration and client environment"),
        plain_step("Install the program of the unit", "mps", {"state": "installed"}),
    ),
    "service": (step("Start, change or stop the MPS daemons", "mps", "daemons", {"state": "running"}),),
}
