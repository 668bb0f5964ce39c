"""Run AWS's EFA installer unless it has run already, or load the driver that it installed.

`installed` runs efa_installer.sh from an archive on the host, unless it was run from the same archive with the same
options. The archive's checksum is verified before anything in it is run.
`loaded` loads the kernel module efa, replacing another build that is loaded and not in use.

state: The desired state.
archive: Path of aws-efa-installer-VERSION.tar.gz on the host. In check mode it need not exist.
sha256: The archive's checksum.
kmod: True to install the kernel module, too.
plugin: True to install aws-ofi-nccl.
mpi: The Open MPI versions to install.

Returns:
due: The reason why the installer had to run; empty if it had run before. (state is installed)
reboot: The reason why only a reboot changes the driver; empty if none is needed. (state is loaded)
"""

from __future__ import annotations

from .. import efa, reasons
from ..files import peek
from ..module import AnsibleModule

OPTIONS = {
    "state": {"type": "str", "choices": ["installed", "loaded"], "required": True},
    "archive": {"type": "str"},
    "sha256": {"type": "str"},
    "kmod": {"type": "bool", "default": True},
    "plugin": {"type": "bool", "default": True},
    "mpi": {"type": "str", "choices": ["none", "openmpi4", "openmpi5", "both"], "default": "none"},
}
REQUIRED_IF = [("state", "installed", ("archive", "sha256"))]


def run(module: AnsibleModule) -> None:
    params = module.params
    try:
        if params["state"] == "loaded":
            answer = efa.settle(change=not module.check_mode)
            reasons.keep("rdma", answer["reboot"], check=module.check_mode)
            module.exit_json(**answer)
        options = efa.build_options(params)
        due = efa.explain_installation(peek(efa.RECORD), params["sha256"], options)
        if due and not module.check_mode:
            efa.install(params["archive"], params["sha256"], options)
        module.exit_json(changed=bool(due), due=due)
    except OSError as error:
        module.fail_json(msg=str(error))
