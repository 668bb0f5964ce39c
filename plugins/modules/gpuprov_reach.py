#!/usr/bin/python
"""The host's part of an action: plugins/action/gpuprov_reach.py runs on the controller, and reads Ansible's facts
here."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpuprov_reach
short_description: Reach a host before any module can run there
description:
  - Refuses a host that is not Linux, not of a supported distribution, not worked on as root, read-only, or without a
    Python that starts.
  - A host that was reached is of the group C(gpuprov_reached) from then on, which the acts go over.
  - Runs on the controller, with the Python package gpuprov beside ansible-core. Of the host it runs one script and
    Ansible's setup, which only read.
author: gpuprov
options:
  facts:
    description: Ansible's subsets of facts, as its setup has them. Set by the action plugin.
    type: list
    elements: str
    default: []
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
family:
  description: Of packages, debian, redhat or suse.
  type: str
  returned: success
platform:
  description: The distribution as gpuprov's catalogue calls it, such as debian12.
  type: str
  returned: success
"""

from ansible.module_utils.facts import ansible_collector, default_collectors
from ansible.module_utils.facts.namespace import PrefixFactNamespace
from ansible.module_utils.gpuprov_host_code.module import AnsibleModule


def main() -> None:
    module = AnsibleModule({"facts": {"type": "list", "elements": "str", "default": []}}, supports_check_mode=True)
    if not module.params["facts"]:
        module.fail_json(
            msg="gpuprov_reach is an action: action_plugins of this project must be where Ansible looks for them"
        )
    collector = ansible_collector.get_ansible_collector(
        all_collector_classes=default_collectors.collectors,
        namespace=PrefixFactNamespace(namespace_name="ansible", prefix="ansible_"),
        gather_subset=module.params["facts"],
    )
    module.exit_json(changed=False, ansible_facts=collector.collect(module=module))


if __name__ == "__main__":
    main()
