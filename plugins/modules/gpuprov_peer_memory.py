#!/usr/bin/python
"""Have a module for peer memory loaded, by its unit."""

from __future__ import annotations

DOCUMENTATION = """
module: gpuprov_peer_memory
short_description: Have a kernel module for peer memory loaded with its parameters, and no other beside it
description:
  - Restarts the unit that loads it, where it is not loaded, or with other parameters, or where the other module is loaded.
  - On a host that waits for a reboot nothing is done.
  - Of a module that does not load, it says what the kernel said, what that means, and the fix.
author: gpuprov
options:
  name:
    description: The module.
    type: str
    required: true
  other:
    description: The module that may not be loaded beside it.
    type: str
    default: ""
  unit:
    description: The unit that loads it.
    type: str
    required: true
  parameters:
    description: Values of its parameters by name.
    type: dict
    default: {}
  causes:
    description: What messages of the kernel mean. The first whose C(text), a regular expression, fits, is told.
    type: list
    elements: dict
    default: []
    suboptions:
      text: {description: A regular expression., type: str, required: true}
      cause: {description: What it means., type: str, required: true}
      way: {description: The fix., type: str, required: true}
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
"""
EXAMPLES = """
- name: Load the peer module
  gpuprov_peer_memory:
    name: nvidia_peermem
    other: nv_peer_mem
    unit: gpuprov-gpudirect.service
    parameters: {peerdirect_support: "0"}
"""
RETURN = """
differs:
  description: What was not as it should be.
  type: list
  elements: str
  returned: success
"""

from ansible.module_utils.gpuprov_onhost import peer_memory, reasons
from ansible.module_utils.gpuprov_onhost.module import AnsibleModule

CAUSE = {name: {"type": "str", "required": True} for name in ("text", "cause", "way")}
SPEC = {
    "name": {"type": "str", "required": True},
    "other": {"type": "str", "default": ""},
    "unit": {"type": "str", "required": True},
    "parameters": {"type": "dict", "default": {}},
    "causes": {"type": "list", "elements": "dict", "options": CAUSE, "default": []},
}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    asked = module.params
    name, other = asked["name"], asked["other"]
    parameters = {key: str(value) for key, value in asked["parameters"].items()}
    try:
        found = [] if reasons.known() else peer_memory.differences(name, other, parameters)
        if found and not module.check_mode:
            peer_memory.load(asked["unit"], name, other, parameters, asked["causes"])
    except peer_memory.Failed as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"{name}: {error}. Fix: systemctl status {asked['unit']}, on the host")
    told = f"{'would load' if module.check_mode else 'loaded'} {name} ({', '.join(found)})"
    module.exit_json(changed=bool(found), differs=found, **({"msg": told} if found else {}))


if __name__ == "__main__":
    main()
