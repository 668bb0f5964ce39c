#!/usr/bin/python
"""Build a peer module again by DKMS, against the ib_core that is there now."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpuprov_peer_build
short_description: Have a kernel module for peer memory that was built against the ib_core that is there
description:
  - The DKMS package that has the module is built again in a tree of its own, and put in place only if it has peer memory then. What is
    cut off or fails leaves the modules that were there.
  - In check mode it is said.
author: gpuprov
options:
  module:
    description: The module.
    type: str
    choices: [nvidia_peermem, nv_peer_mem]
    required: true
  kernels:
    description: Kernels that it is built for.
    type: list
    elements: str
    required: true
  why:
    description: Why it is, in words.
    type: str
    required: true
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
"""

EXAMPLES = r"""
- name: Have a module that was built against OFED's ib_core
  gpuprov_peer_build:
    module: nvidia_peermem
    kernels: [6.8.0-60-generic]
    why: "6.8.0-60-generic: it was built without peer memory"
"""

RETURN = r"""
msg:
  description: What was done, or would be.
  type: str
  returned: changed
"""

from ansible.module_utils.gpuprov_onhost import peer_build
from ansible.module_utils.gpuprov_onhost.module import AnsibleModule

SPEC = {
    "module": {"type": "str", "choices": ["nvidia_peermem", "nv_peer_mem"], "required": True},
    "kernels": {"type": "list", "elements": "str", "required": True},
    "why": {"type": "str", "required": True},
}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    name, kernels, why = (module.params[key] for key in ("module", "kernels", "why"))
    if module.check_mode:
        module.exit_json(changed=True, msg=f"would build {name} again for {why}")
    try:
        peer_build.rebuild(name, kernels)
    except (peer_build.Failed, OSError) as error:
        told = f"{name} could not be built again, the modules that were there are untouched ({why}). {error}"
        module.fail_json(msg=f"{told}. Fix: correct what the build says; or method dmabuf, which needs no such module")
    module.exit_json(changed=True, msg=f"built {name} again for {why}")


if __name__ == "__main__":
    main()
