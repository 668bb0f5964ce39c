"""The tasks of the role."""

from gpuprov.capabilities.tasks import Stages, files, judge, packages, step, try_packages, unit

TASKS: Stages = {
    "assert": (try_packages(),),
    "install": (packages("Install setpci", "install"),),
    "configure": (
        files("Write the boot-time PCIe settings and irqbalance's policy"),
        step("Write rdma_topo's ACS masks for the kernel", "command", "masks"),
    ),
    "service": (
        judge(
            "Evaluate again, with the devices as they are now",
            "now",
            "The roles before this one may have loaded the drivers of HCAs, and reset them.",
        ),
        unit("Restart irqbalance", "balancer"),
        unit("Set the PCIe functions by their unit"),
    ),
}
