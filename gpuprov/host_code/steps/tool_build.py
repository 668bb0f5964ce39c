"""Build nccl-tests or nvbandwidth on the host from an archive.

The folder is replaced as a whole or not at all. Its file `built` names the program; the build's output is in
FOLDER.log.
gpuprov calls this step only when a build is needed, so that running it counts as the change. Check mode reports the
build and does not run it.

name: The tool.
archive: The source archive, on the host.
folder: The destination folder.
program: The program that the build must produce.
mpi: True to build with MPI.

Returns:
msg: The build made, or in check mode pending.
"""

from __future__ import annotations

from .. import tool_build
from ..failed import Failed
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
    except (Failed, OSError) as error:
        fix = f"see {folder}.log there; it needs a CUDA toolkit that fits the driver"
        module.fail_json(msg=f"{name} could not be built: {error}. Fix: {fix}")
    module.exit_json(changed=True, msg=f"{name} was built in {folder}")
