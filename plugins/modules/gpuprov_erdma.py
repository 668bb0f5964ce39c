#!/usr/bin/python
"""Run Alibaba's eRDMA installer, or have DKMS build its driver for kernels that lack it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpuprov_erdma
short_description: Run Alibaba's eRDMA installer, or build its driver for kernels that lack it
description:
  - V(state=installed) compares the archive's checksum, unpacks it and runs its install.sh; which one ran is recorded, and the archive
    leaves.
  - V(state=built) has DKMS build and install the driver for each kernel. What was built before is put back where a build fails.
  - In check mode it is said.
author: gpuprov
options:
  state:
    description: What to have.
    type: str
    choices: [installed, built]
    required: true
  archive:
    description: erdma_installer-VERSION.tar.gz on the host.
    type: path
  sha256:
    description: Its checksum.
    type: str
  named:
    description: What the spec calls it, for messages.
    type: str
    default: ""
  mode:
    description: The mode that the driver is to run in, for the record.
    type: str
    choices: [compat, iwarp]
    default: compat
  kernels:
    description: Kernels to build for, or that check mode names.
    type: list
    elements: str
    default: []
  environment:
    description: What the driver's build is told by variables.
    type: dict
    default: {}
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
"""

EXAMPLES = r"""
- name: Build the driver for a kernel that lacks it
  gpuprov_erdma: {state: built, kernels: [6.1.0-47-amd64], environment: {ERDMA_FORCE_MAD_ENABLE: "1"}}
"""

RETURN = r"""
msg:
  description: What was done, or would be.
  type: str
  returned: changed
"""

from ansible.module_utils.gpuprov_onhost import erdma
from ansible.module_utils.gpuprov_onhost.module import AnsibleModule

SPEC = {
    "state": {"type": "str", "choices": ["installed", "built"], "required": True},
    "archive": {"type": "path"},
    "sha256": {"type": "str"},
    "named": {"type": "str", "default": ""},
    "mode": {"type": "str", "choices": ["compat", "iwarp"], "default": "compat"},
    "kernels": {"type": "list", "elements": "str", "default": []},
    "environment": {"type": "dict", "default": {}},
}


def main() -> None:
    needs = [("state", "installed", ("archive", "sha256"))]
    module = AnsibleModule(argument_spec=SPEC, required_if=needs, supports_check_mode=True)
    asked = module.params
    kernels, runs = asked["kernels"], asked["state"] == "installed"
    if not runs and not kernels:
        module.exit_json(changed=False)
    what = f"run install.sh of {asked['named']}" if runs else "build the eRDMA driver"
    told = f"{what}, for {' '.join(kernels)}"
    if module.check_mode:
        module.exit_json(changed=True, msg=f"would {told}")
    environment = {name: str(value) for name, value in asked["environment"].items()}
    try:
        if runs:
            erdma.install(asked["archive"], asked["sha256"], asked["mode"], environment)
        else:
            erdma.build(kernels, environment)
    except erdma.Failed as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"{what}: {error}. Fix: see the file system of the host")
    module.exit_json(changed=True, msg=f"did {told}")


if __name__ == "__main__":
    main()
