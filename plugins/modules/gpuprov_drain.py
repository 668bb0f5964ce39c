#!/usr/bin/python
"""The documentation of an action: plugins/action/gpuprov_drain.py runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpuprov_drain
short_description: Have users' processes leave the GPUs of a host, or give a Kubernetes node back
description:
  - V(drained) runs the site's command on the host, where a user's process holds a GPU. With the command C(kubernetes [OPTION]...)
    the node is cordoned by kubectl, on the machine that runs Ansible; its pods and the GPU operator's are taken off it.
  - V(returned) puts back what the latter has changed, unless the host waits for a reboot, or an act from the second
    on has failed on it. The node is known to be its own by the run that has the host's lock. Not in C(gpuprov apply), which does so
    after its verify.
  - Check mode drains nothing and says whether it would.
author: gpuprov
options:
  state:
    description: What to do.
    type: str
    choices: [drained, returned]
    required: true
  command:
    description: The site's command; empty where there is none.
    type: str
    default: ""
  node:
    description: The node of Kubernetes, as the inventory names it, and never as the host does.
    type: str
    default: ""
  services:
    description: Units that hold GPUs and are no users (M(gpuprov_clients)).
    type: list
    elements: str
    default: []
  guests:
    description: Whether a process that has a GPU for a virtual machine holds it, too (M(gpuprov_clients)).
    type: bool
    default: false
  always:
    description: Whether it is known that somebody holds a GPU.
    type: bool
    default: false
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
"""

EXAMPLES = r"""
- name: Drain the host where users hold a GPU
  gpuprov_drain:
    state: drained
    command: kubernetes --timeout=20m
    node: gpu01
    services: "{{ gpuprov_services }}"
"""

RETURN = r"""
changed:
  description: Whether anything was drained, or put back.
  type: bool
  returned: always
"""

from ansible.module_utils.gpuprov_onhost.module import AnsibleModule

SPEC = {
    "state": {"type": "str", "choices": ["drained", "returned"], "required": True},
    "command": {"type": "str", "default": ""},
    "node": {"type": "str", "default": ""},
    "services": {"type": "list", "elements": "str", "default": []},
    "guests": {"type": "bool", "default": False},
    "always": {"type": "bool", "default": False},
}


def main() -> None:
    AnsibleModule(SPEC, supports_check_mode=True).fail_json(
        msg="gpuprov_drain is an action: action_plugins of this project must be where Ansible looks for them"
    )


if __name__ == "__main__":
    main()
