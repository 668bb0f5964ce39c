"""The tasks of the role."""

from gpuprov.capabilities.tasks import Part, Stages, files, judge, judge_after_driver, packages, step, try_packages

REBUILD_FIX = "correct what /var/lib/dkms/nvidia-fs/VERSION/build/make.log says, and apply again"

TASKS: Stages = {
    "assert": (judge_after_driver(), try_packages()),
    "install": (
        packages("Install GPUDirect Storage", "install"),
        Part(
            title="Build nvidia-fs for OFED's modules",
            file="ofed",
            tasks=(
                judge("Evaluate again, with the installed OFED", "now"),
                step(
                    "Build nvidia-fs anew where OFED's modules are newer",
                    "command",
                    "rebuild",
                    {"fix": REBUILD_FIX},
                    each="argv",
                ),
            ),
            key="ofed",
        ),
    ),
    "configure": (
        files("Set what cuFile reads"),
        step("Let /etc/cufile.json lead to the release's file", "command", each="argv"),
    ),
    "service": (judge("Evaluate again, after nvidia_driver", "now"), step("Load nvidia_fs", "running_kernel")),
}
