"""The tasks of the role."""

from gpuprov.capabilities.tasks import Stages, Task, daemon, files, taken

ROOT = {"owner": "root", "group": "root"}

TASKS: Stages = {
    "configure": (
        files("Write gridd.conf and remove other tokens"),
        Task(
            title="Create the token's folder",
            module="ansible.builtin.file",
            options={**taken("path"), "state": "directory", **ROOT, "mode": "0755"},
            key="folder",
        ),
        Task(
            title="Install the token",
            module="ansible.builtin.copy",
            options={**taken("src", "dest"), **ROOT, **taken("mode")},
            key="token",
            within="folder",
            secret=True,
        ),
        Task(
            title="Set owner and mode of the host's own tokens",
            module="ansible.builtin.file",
            options={**taken("path"), "owner": "root", **taken("mode")},
            key="own",
            each="path",
        ),
    ),
    "service": (daemon("Start the licensing daemon and wait for the licence"),),
}
