#!/usr/bin/python
"""Kernel modules that should not be loaded, unloaded where nothing uses them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpuprov_unload
short_description: Unload kernel modules that nothing uses
description:
  - Unloads each module that is loaded, and says which are in use; those leave only with a reboot.
author: gpuprov
options:
  modules:
    description: Their names. A hyphen counts as an underscore.
    type: list
    elements: str
    required: true
  capability:
    description: Whose reason for a reboot it is that one is in use; without it none is noted. See M(gpuprov_reason).
    type: str
    default: ""
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
"""

EXAMPLES = r"""
- name: Have the in-tree drivers out
  gpuprov_unload: {modules: [nouveau, nova_core], capability: nouveau}
"""

RETURN = r"""
busy:
  description: Modules that are in use.
  type: list
  elements: str
  returned: always
"""

from ansible.module_utils.gpuprov_onhost import reasons
from ansible.module_utils.gpuprov_onhost import running_kernel as kernel
from ansible.module_utils.gpuprov_onhost.module import AnsibleModule

SPEC = {
    "modules": {"type": "list", "elements": "str", "required": True},
    "capability": {"type": "str", "default": ""},
}


def main() -> None:
    module = AnsibleModule(SPEC, supports_check_mode=True)
    wanted = module.params["modules"]
    gone, busy = [], []
    for name in kernel.loaded(wanted):
        if kernel.unload(name, dry=module.check_mode):
            gone.append(name)
        else:
            busy.append(name)
    if module.params["capability"]:
        verbs = ("is", "leaves") if len(busy) == 1 else ("are", "leave")
        why = f"{' '.join(busy)} {verbs[0]} in use and {verbs[1]} only with a reboot"
        reasons.keep(module.params["capability"], why if busy else "", check=module.check_mode)
    diff = {
        "before": "".join(f"{name}: loaded\n" for name in gone),
        "after": "".join(f"{name}: not loaded\n" for name in gone),
    }
    module.exit_json(changed=bool(gone), busy=busy, diff=diff)


if __name__ == "__main__":
    main()
