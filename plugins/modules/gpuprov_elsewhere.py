#!/usr/bin/python
"""The documentation of an action: plugins/action/gpuprov_elsewhere.py compares on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpuprov_elsewhere
short_description: Go on only where the host is another machine than the one that runs Ansible
description:
  - Compares boot and process namespace of both. A container on this machine is another host, unless it is the one that runs Ansible.
author: gpuprov
options:
  reasons:
    description: Why the host has to be rebooted, which is said where it cannot be.
    type: list
    elements: str
    required: true
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
"""

EXAMPLES = r"""
- name: Refuse to reboot the machine that runs this
  gpuprov_elsewhere:
    reasons: ["nvidia_driver: the loaded driver is old"]
"""

RETURN = r"""
machine:
  description: What the host said of itself, its boot and its process namespace.
  type: str
  returned: success
"""

from ansible.module_utils.gpuprov_onhost.module import AnsibleModule


def main() -> None:
    options = {"reasons": {"type": "list", "elements": "str", "required": True}}
    AnsibleModule(options, supports_check_mode=True).fail_json(
        msg="gpuprov_elsewhere is an action: action_plugins of this project must be where Ansible looks for them"
    )


if __name__ == "__main__":
    main()
