"""Run AWS's EFA installer where it has not run yet, or load the driver that it brought.

`state=installed` runs efa_installer.sh of an archive on the host, unless it was run from the same archive with
the same options. The archive's checksum is compared before anything of it is run.
`state=loaded` loads the kernel's module efa, in the place of another build that is loaded and not in use.

state: What to have.
archive: aws-efa-installer-VERSION.tar.gz on the host. In check mode it need not be there.
sha256: The archive's checksum.
kmod: Whether the installer brings the kernel module, too.
plugin: Whether it brings aws-ofi-nccl.
mpi: Which Open MPI it brings.

Returns:
due: Why the installer had to run; empty where it had run. (state is installed)
reboot: Why the driver can only be changed by a reboot; empty where that is not so. (state is loaded)
"""

from __future__ import annotations

from .. import efa, reasons
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
    asked = module.params
    try:
        if asked["state"] == "loaded":
            answer = efa.settle(change=not module.check_mode)
            reasons.keep("rdma", answer["reboot"], check=module.check_mode)
            module.exit_json(**answer)
        wanted = efa.options(asked)
        due = efa.due(efa.read(efa.RECORD), asked["sha256"], wanted)
        if due and not module.check_mode:
            efa.install(asked["archive"], asked["sha256"], wanted)
        module.exit_json(changed=bool(due), due=due)
    except (efa.EfaError, OSError) as error:
        module.fail_json(msg=str(error))
