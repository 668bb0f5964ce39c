#!/usr/bin/python
"""The documentation of an action: plugins/action/gpuprov_give_up.py runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpuprov_give_up
short_description: Take back what was begun for a step that failed, and fail with its reason
description:
  - Starts the services again that were stopped for it; of a driver's step, takes away the modules that were built aside and loads the
    driver again that was taken out of the kernel.
  - Always fails, with the reason of the step that failed first; what could not be taken back is added to it.
author: gpuprov
options:
  failure:
    description: The result of the task that failed (ansible_failed_result).
    type: dict
    required: true
  services:
    description: Units that may have been stopped, in the order in which they are stopped.
    type: list
    elements: str
    required: true
  driver:
    description: Whether it was a step of the driver.
    type: bool
    default: false
  pack:
    description: The archive of modules that were built aside (M(gpuprov_driver_modules)).
    type: str
    default: ""
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
"""

EXAMPLES = r"""
- name: Start again what was stopped, and give the reason
  gpuprov_give_up: {failure: "{{ ansible_failed_result }}", services: "{{ gpuprov_services }}"}
"""

RETURN = r"""
msg:
  description: Why the step failed, and what could not be taken back.
  type: str
  returned: always
"""

from ansible.module_utils.gpuprov_onhost.module import AnsibleModule

SPEC = {
    "failure": {"type": "dict", "required": True},
    "services": {"type": "list", "elements": "str", "required": True},
    "driver": {"type": "bool", "default": False},
    "pack": {"type": "str", "default": ""},
}


def main() -> None:
    AnsibleModule(SPEC, supports_check_mode=True).fail_json(
        msg="gpuprov_give_up is an action: action_plugins of this project must be where Ansible looks for them"
    )


if __name__ == "__main__":
    main()
