#!/usr/bin/python
"""The host's part of an action: plugins/action/gpuprov_judge.py judges on the controller, by what a script prints
here."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpuprov_judge
short_description: Judge a host by gpuprov's own checks
description:
  - Runs on the controller, with the Python package gpuprov beside ansible-core; of the host it runs one script, which
    only reads.
  - Fails with everything that forbids to change the host, each with its way out. Otherwise it works out what each role
    brings about.
  - The result is registered as C(gpuprov_judged), from which it goes on at the next moment. That of other capabilities
    stays.
author: gpuprov
options:
  capabilities:
    description: The capabilities of this run.
    type: list
    elements: str
    required: true
  moment:
    description:
      - C(preflight) asks what must hold before anything is changed.
      - C(sources) asks again for a role that takes packages from a source that was added meanwhile, or whose choice
        depends on the driver, which is then the one that was judged to come. What waits for a source all the same is
        refused; in check mode, it is said.
      - C(now) only works out anew what the roles bring about, once packages or a reboot have changed the host.
    type: str
    choices: [preflight, sources, now]
    required: true
  script:
    description: Shell that only reads. Set by the action plugin.
    type: str
    default: ""
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
"""

EXAMPLES = r"""
- name: Judge the host
  gpuprov_judge: {capabilities: [kernel, nvidia_driver], moment: preflight}
  register: gpuprov_judged
"""

RETURN = r"""
desired:
  description: What each role brings about, by capability.
  type: dict
  returned: success
printed:
  description: Both streams of O(script), compressed and in base64, as bytes that are not UTF-8 come through no result
    of a module.
  type: str
  returned: a script was given
"""

from ansible.module_utils.gpuprov_host_code import streams
from ansible.module_utils.gpuprov_host_code.module import AnsibleModule


def main() -> None:
    options = {
        "capabilities": {"type": "list", "elements": "str", "required": True},
        "moment": {"type": "str", "choices": ["preflight", "sources", "now"], "required": True},
        "script": {"type": "str", "default": ""},
    }
    module = AnsibleModule(options, supports_check_mode=True)
    if not module.params["script"]:
        module.fail_json(
            msg="gpuprov_judge is an action: action_plugins of this project must be where Ansible looks for them"
        )
    module.exit_json(changed=False, printed=streams.pack_streams(module.params["script"]))


if __name__ == "__main__":
    main()
