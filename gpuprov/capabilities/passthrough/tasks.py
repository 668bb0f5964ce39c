"""The tasks of the role."""

from gpuprov.capabilities.tasks import Block, Stages, drain, files, judge, start_clients, stop_clients, unit

TASKS: Stages = {
    "configure": (files("Write the list of lent GPUs and the unit that binds them at boot"),),
    "service": (
        judge("Evaluate again, with the IOMMU as it is now", "now", "The reboot before this may have switched it on."),
        Block(
            title="Bind the GPUs",
            tasks=(
                drain("Drain the host, because a GPU is taken from it", checks=False),
                stop_clients("Stop services that hold GPUs", checks=False),
                unit("Bind the GPUs by the unit"),
                start_clients("Restart what was stopped", "start", checks=False),
            ),
        ),
    ),
}
