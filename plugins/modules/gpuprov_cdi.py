#!/usr/bin/python
"""Have containers find the GPUs that there are."""

from __future__ import annotations

DOCUMENTATION = """
module: gpuprov_cdi
short_description: Have containers find the GPUs of a host as they are now
description:
  - Links NVIDIA's device files in /dev/char, without which systemd takes them from containers at a daemon-reload.
  - Makes the CDI specification anew where it is not the one that nvidia-ctk would write now, and removes that of the other directory.
    Before that the device file of unified memory is made, which no kernel makes.
  - A host whose nvidia-smi lists no GPU keeps what it has. Check mode says what would change.
author: gpuprov
options:
  directory:
    description: Where the specification lies.
    type: str
    choices: [/var/run/cdi, /etc/cdi]
    required: true
"""
EXAMPLES = """
- name: Have containers find the GPUs and MIG devices that there are now
  gpuprov_cdi: {directory: /var/run/cdi}
"""
RETURN = """
changes:
  description: What was changed, or would be, in words.
  type: list
  elements: str
  returned: always
"""

from ansible.module_utils.gpuprov_onhost import cdi
from ansible.module_utils.gpuprov_onhost.module import AnsibleModule


def main() -> None:
    options = {"directory": {"type": "str", "choices": list(cdi.DIRECTORIES), "required": True}}
    module = AnsibleModule(options, supports_check_mode=True)
    try:
        changes = cdi.settle(module.params["directory"], check=module.check_mode)
    except (OSError, cdi.Refused) as error:
        module.fail_json(msg=f"{error}. Fix: repair the driver (gpuprov verify), then apply again")
    module.exit_json(changed=bool(changes), changes=changes, diff={"prepared": "".join(f"{one}\n" for one in changes)})


if __name__ == "__main__":
    main()
