"""Let containers find the host's GPUs as they are now.

Links NVIDIA's device files in /dev/char; without the links, systemd takes the GPUs from containers at a
daemon-reload.
Regenerates the CDI specification if it differs from what nvidia-ctk would write now, and removes the specification
in the other directory. First creates the device file of unified memory, which no kernel creates.
A host whose nvidia-smi lists no GPU is left as it is. Check mode reports what would change.

directory: The directory of the specification.

Returns:
changes: The changes made, or in check mode pending, one line each.
"""

from __future__ import annotations

from .. import cdi
from ..failed import Failed
from ..module import AnsibleModule

OPTIONS = {"directory": {"type": "str", "choices": list(cdi.DIRECTORIES), "required": True}}


def run(module: AnsibleModule) -> None:
    try:
        changes = cdi.settle(module.params["directory"], check=module.check_mode)
    except (OSError, Failed) as error:
        module.fail_json(msg=f"{error}. Fix: repair the driver (gpuprov verify), then apply again")
    module.exit_json(
        changed=bool(changes), changes=changes, diff={"prepared": "".join(f"{line}\n" for line in changes)}
    )
