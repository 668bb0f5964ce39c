#!/usr/bin/python
"""The documentation of an action: plugins/action/gpuprov_reach.py runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpuprov_reach
short_description: Reach a host before any module can run there
description:
  - Refuses a host that is not Linux, not of a supported distribution, not worked on as root, read-only, or without a
    Python that starts.
  - A host that was reached is of the group C(gpuprov_reached) from then on, which the acts go over.
  - Runs on the controller, with the Python package gpuprov beside ansible-core. On the host it runs one script, which
    only reads.
author: gpuprov
options: {}
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
"""

EXAMPLES = r"""
- name: Reach the host
  gpuprov_reach: {}
  register: host_reached
"""

RETURN = r"""
python:
  description: The interpreter for modules, which starts and is new enough.
  type: str
  returned: success
environment:
  description: What programs need of the environment, the folders that a sudo may leave out among it.
  type: dict
  returned: success
platform:
  description: The distribution as gpuprov's catalogue calls it, such as debian12.
  type: str
  returned: success
"""

from ansible.module_utils.gpuprov_host_code.module import AnsibleModule


def main() -> None:
    AnsibleModule({}, supports_check_mode=True).fail_json(
        msg="gpuprov_reach is an action: action_plugins of this project must be where Ansible looks for them"
    )


if __name__ == "__main__":
    main()
