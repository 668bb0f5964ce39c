"""Have containers find the GPUs of a host as they are now.

Links NVIDIA's device files in /dev/char, without which systemd takes them from containers at a daemon-reload.
Makes the CDI specification anew where it is not the one that nvidia-ctk would write now, and removes that of
the other directory. Before that the device file of unified memory is made, which no kernel makes.
A host whose nvidia-smi lists no GPU keeps what it has. Check mode says what would change.

directory: Where the specification lies.

Returns:
changes: What was changed, or would be, in words.
"""

from __future__ import annotations

from .. import cdi
from ..module import AnsibleModule

OPTIONS = {"directory": {"type": "str", "choices": list(cdi.DIRECTORIES), "required": True}}


def run(module: AnsibleModule) -> None:
    try:
        changes = cdi.settle(module.params["directory"], check=module.check_mode)
    except (OSError, cdi.Refused) as error:
        module.fail_json(msg=f"{error}. Fix: repair the driver (gpuprov verify), then apply again")
    module.exit_json(changed=bool(changes), changes=changes, diff={"prepared": "".join(f"{one}\n" for one in changes)})
