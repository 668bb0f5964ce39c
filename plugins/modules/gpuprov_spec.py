#!/usr/bin/python
"""The documentation of an action: plugins/action/gpuprov_spec.py reads on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpuprov_spec
short_description: Read what the specs of hosts ask for
description:
  - Gives a host the variables that C(gpuprov render) would have written for it, from its merged C(gpuprov), read by the
    same code.
  - Runs on the controller, with the Python package gpuprov beside ansible-core, and connects to no host.
  - Fails where a source cannot be read, or where what it asks of a host of this play cannot be.
author: gpuprov
options:
  host:
    description: The host of the play that gets its variables; this one by default. One that has no spec gets none.
    type: str
    default: ""
  role:
    description: A role that is applied by itself. Without a spec of the host it takes its own variables, and defaults
      for the others.
    type: str
    default: ""
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
"""

EXAMPLES = r"""
- name: Read the specs of all hosts of the play
  gpuprov_spec: {host: "{{ item }}"}
  loop: "{{ ansible_play_hosts_all }}"
  run_once: true
- name: Read what the spec of this host asks of a role
  gpuprov_spec: {role: nvidia_driver}
"""

RETURN = r"""
msg:
  description: That the host has no spec.
  type: str
  returned: where it has none
"""

from ansible.module_utils.gpuprov_host_code.module import AnsibleModule


def main() -> None:
    options = {"host": {"type": "str", "default": ""}, "role": {"type": "str", "default": ""}}
    AnsibleModule(options, supports_check_mode=True).fail_json(
        msg="gpuprov_spec is an action: action_plugins of this project must be where Ansible looks for them"
    )


if __name__ == "__main__":
    main()
