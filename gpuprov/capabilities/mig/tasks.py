"""The tasks of the role."""

from gpuprov.capabilities.tasks import Block, Stages, drain, files, judge, start_clients, step, stop_clients, unit

TASKS: Stages = {
    "configure": (
        files(
            "Restore MIG at boot by a unit",
            shows=False,
            why="Not shown: what gpuprov knows of models is not a setting.",
        ),
    ),
    "service": (
        judge(
            "Evaluate again, with the driver as it is now",
            "now",
            "The role of the driver, before this one, may have loaded it.",
        ),
        Block(
            title="Set up MIG",
            tasks=(
                drain("Drain the host, because a MIG instance in use must go", checks=False),
                stop_clients("Stop services that hold GPUs, for the reset", checks=False),
                step("Set up MIG, now and at boot", "mig"),
                start_clients(
                    "Restart what was stopped",
                    "start",
                    checks=False,
                    why="Role mps, which comes next, starts its daemons for the MIG devices that there are now. "
                    "Before the CDI specification is made: it has the socket of nvidia-persistenced in it, where "
                    "that runs.",
                ),
                step("Update the CDI specification", "cdi", unless="mig.later", checks=False),
                unit("Start the unit", each="name", unless="mig.later"),
            ),
        ),
    ),
}
