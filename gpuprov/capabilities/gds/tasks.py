"""The tasks of the role."""

from gpuprov.capabilities.tasks import Stages, files, judge, judge_after_driver, packages, step, try_packages

TASKS: Stages = {
    "assert": (judge_after_driver(), try_packages()),
    "install": (packages("Install GPUDirect Storage", "install"),),
    "configure": (
        files("Set what cuFile reads"),
        step("Let /etc/cufile.json lead to the release's file", "command", each="argv"),
    ),
    "service": (judge("Evaluate again, after nvidia_driver", "now"), step("Load nvidia_fs", "running_kernel")),
}
