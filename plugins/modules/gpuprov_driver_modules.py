#!/usr/bin/python
"""The kernel modules of NVIDIA's driver, for every kernel of a host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpuprov_driver_modules
short_description: Build the driver's kernel modules aside, or have them in place for every kernel
description:
  - V(aside) downloads the packages that modules are built from, and builds these for every kernel where they touch nothing, so that a
    build that fails leaves the old driver as it is. The transaction after it then builds nothing.
  - V(dkms) has DKMS build and install the modules of a package for each kernel that lacks them. What was built aside is used, and
    taken away.
  - V(runfile) does the same with what NVIDIA's installer has registered.
  - V(precompiled) has the modules of precompiled packages be the ones that each kernel loads.
  - V(cleared) takes away what was built aside.
  - A kernel for which it fails, and the end of make.log, is in the message.
author: gpuprov
options:
  state:
    description: What to do.
    type: str
    choices: [aside, dkms, runfile, precompiled, cleared]
    required: true
  version:
    description: The driver's version.
    type: str
    default: ""
  flavour:
    description: Of the modules.
    type: str
    choices: [open, proprietary, ""]
    default: ""
  kernels:
    description: Releases of the kernels.
    type: list
    elements: str
    default: []
  built_from:
    description: NAME=VERSION of the packages that have the source (V(aside)).
    type: list
    elements: str
    default: []
  package:
    description: The installed package that has the source (V(dkms)).
    type: str
    default: ""
  module:
    description: What the module's file is called, without its ending (V(dkms)).
    type: str
    default: nvidia
  pack:
    description: What V(aside) has returned.
    type: str
    default: ""
  packages:
    description: Those that have precompiled modules.
    type: list
    elements: str
    default: []
  serial:
    description: Serial number of the certificate of the site's key, that every module is signed with; empty where DKMS signs.
    type: str
    default: ""
  key_file:
    description: The site's key, on the host.
    type: str
    default: ""
  certificate_file:
    description: Its certificate, on the host.
    type: str
    default: ""
  without:
    description: Names of gpuprov's own package sources that are to leave, and are not seen (V(aside)).
    type: list
    elements: str
    default: []
  lock_timeout:
    description: How long to wait for another package manager to finish, in seconds.
    type: int
    default: 300
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
"""

EXAMPLES = r"""
- name: Build the modules aside
  gpuprov_driver_modules:
    state: aside
    version: 535.261.03
    flavour: proprietary
    kernels: [6.1.0-47-amd64]
    built_from: [nvidia-kernel-dkms=535.261.03-1]
  register: aside
- name: Have the modules for every kernel
  gpuprov_driver_modules:
    state: dkms
    version: 535.261.03
    flavour: proprietary
    kernels: [6.1.0-47-amd64]
    package: nvidia-kernel-dkms
    module: nvidia-current
    pack: "{{ aside.pack }}"
"""

RETURN = r"""
pack:
  description: The archive of modules that were built aside; empty in check mode.
  type: str
  returned: state is aside
kernels:
  description: Kernels whose modules were put in place.
  type: list
  elements: str
  returned: state is dkms, runfile or precompiled
signed:
  description: Modules that were signed anew, by kernel.
  type: list
  elements: str
  returned: state is dkms, runfile or precompiled
"""

from typing import Any

from ansible.module_utils.gpuprov_onhost import family
from ansible.module_utils.gpuprov_onhost.driver import actions
from ansible.module_utils.gpuprov_onhost.driver.dkms import Failed
from ansible.module_utils.gpuprov_onhost.module import AnsibleModule
from ansible.module_utils.gpuprov_onhost.packages.model import Refused

NAMES = {"type": "list", "elements": "str", "default": []}
WORD = {"type": "str", "default": ""}
SPEC: dict[str, Any] = {
    "state": {"type": "str", "choices": ["aside", "dkms", "runfile", "precompiled", "cleared"], "required": True},
    "flavour": {"type": "str", "choices": ["open", "proprietary", ""], "default": ""},
    "module": {"type": "str", "default": "nvidia"},
    **dict.fromkeys(("kernels", "built_from", "packages", "without"), NAMES),
    **dict.fromkeys(("version", "package", "pack", "serial", "key_file", "certificate_file"), WORD),
    "lock_timeout": {"type": "int", "default": 300},
}


def main() -> None:
    module = AnsibleModule(SPEC, supports_check_mode=True)
    try:
        answer = actions.ACTIONS[module.params["state"]](family.here(), module.params, module.check_mode)
    except (Refused, Failed) as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"{error.filename}: {error.strerror}. Fix: see the file system of the host")
    module.exit_json(**answer)


if __name__ == "__main__":
    main()
