"""The tasks of the role."""

from gpuprov.capabilities.tasks import Stages, files, packages, step, try_packages

TASKS: Stages = {
    "assert": (
        try_packages(),
        step("Fetch the source archives", "fetch", arguments={"public": True}, each="path", prepares="once"),
    ),
    "install": (
        packages(
            "Install the acceptance tools",
            "install",
            why="Nothing runs by itself: an acceptance loads GPUs and network, and is run on request.",
        ),
        step("Build from source", "tool_build", each="name"),
        files("Remove build files of earlier versions"),
    ),
}
