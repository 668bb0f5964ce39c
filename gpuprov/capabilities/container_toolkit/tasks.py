"""The tasks of the role."""

from gpuprov.capabilities.tasks import Stages, files, free_gpus, judge, packages, repository, step, try_packages

DRAINED = {"drained": "{{ gpuprov_drain_command | default('', true) != '' }}"}

TASKS: Stages = {
    "assert": (
        repository(
            "Add the site's package repository",
            why="Beside the driver's components, the one thing that act 1 writes: without the repository there is "
            "no index to resolve from.",
        ),
        judge("Evaluate again, with the new package sources", "sources"),
        try_packages(),
    ),
    "install": (packages("Install and hold the toolkit packages"),),
    "configure": (
        step("Register the NVIDIA runtime in the container engines", "engines", "register", {"state": "registered"}),
        step("Set the runtime's mode", "command", "settings"),
        files("Refresh the CDI specification at boot"),
    ),
    "service": (
        step("Link device files and update the CDI specification", "cdi"),
        step("Reload or restart container engines", "engines", "daemons", {"state": "in_force", **DRAINED}),
        free_gpus("Drain the host, as docker must be restarted", only_if="daemons.restart"),
        step(
            "Restart docker",
            "engines",
            "restart",
            {"state": "restarted", **DRAINED},
            takes={"names": "daemons.restart"},
            only_if="daemons.restart",
        ),
        step("Pull the image in which CUDA is proved", "command", "pull"),
    ),
}
