"""Build nccl-tests or nvbandwidth from an archive on the host.

The folder is there whole, or as it was. Its file `built` names the program; what the build says is in
FOLDER.log.
It is for a build that gpuprov has found to be needed, so that running it is the change. In check mode it is
said, and not run.

name: What it is.
archive: Its source, on the host.
folder: Where it goes.
program: The program that the build has to make.
mpi: Whether it is built with MPI.

Returns:
msg: What was built, or would be.
"""

from __future__ import annotations

from .. import tool_build
from ..module import AnsibleModule

OPTIONS = {
    "name": {"type": "str", "choices": ["nccl", "nvbandwidth"], "required": True},
    "archive": {"type": "path", "required": True},
    "folder": {"type": "path", "required": True},
    "program": {"type": "str", "required": True},
    "mpi": {"type": "bool", "default": False},
}


def run(module: AnsibleModule) -> None:
    name, archive, folder, program = (module.params[key] for key in ("name", "archive", "folder", "program"))
    if module.check_mode:
        module.exit_json(changed=True, msg=f"would build {name} in {folder}")
    try:
        tool_build.build(name, archive, folder, program, mpi=module.params["mpi"])
    except (tool_build.Failed, OSError) as error:
        hint = f"see {folder}.log there; it needs a CUDA toolkit that fits the driver"
        module.fail_json(msg=f"{name} could not be built: {error}. Fix: {hint}")
    module.exit_json(changed=True, msg=f"{name} was built in {folder}")
