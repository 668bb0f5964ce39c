#!/usr/bin/python
"""NVIDIA's .run file: whether it is the right one, and its installer."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpuprov_driver_runfile
short_description: Judge NVIDIA's .run file, or have its installer run
description:
  - V(judged) refuses a file that its own check finds damaged, or that holds another driver, and takes it away. Nothing is changed
    otherwise. M(gpuprov_fetch) has compared its checksum.
  - V(installed) runs the installer. The file stays.
  - Check mode says what would be done.
author: gpuprov
options:
  state:
    description: What to do.
    type: str
    choices: [judged, installed]
    required: true
  path:
    description: Where the file is on the host.
    type: path
    required: true
  version:
    description: The driver's version.
    type: str
    required: true
  of:
    description: Where it comes from, for messages (V(judged)).
    type: str
    default: ""
  flavour:
    description: Of the modules, for messages (V(installed)).
    type: str
    default: ""
  options:
    description: The installer's (V(installed)).
    type: list
    elements: str
    default: []
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
"""

EXAMPLES = r"""
- name: Run NVIDIA's installer
  gpuprov_driver_runfile:
    state: installed
    path: /var/cache/gpuprov/NVIDIA-Linux.run
    version: 580.95.05
    options: [--silent, --dkms]
"""

RETURN = r"""
msg:
  description: What would be done.
  type: str
  returned: check mode
"""

from ansible.module_utils.gpuprov_onhost.driver import runfile
from ansible.module_utils.gpuprov_onhost.driver.dkms import Failed
from ansible.module_utils.gpuprov_onhost.module import AnsibleModule

WORDS = {key: {"type": "str", "default": ""} for key in ("of", "flavour")}
SPEC = {
    "state": {"type": "str", "choices": ["judged", "installed"], "required": True},
    "path": {"type": "path", "required": True},
    "version": {"type": "str", "required": True},
    "options": {"type": "list", "elements": "str", "default": []},
    **WORDS,
}


def main() -> None:
    module = AnsibleModule(SPEC, supports_check_mode=True)
    asked = module.params
    judged = asked["state"] == "judged"
    if module.check_mode:
        module.exit_json(
            changed=not judged, msg="" if judged else f"{asked['version']} ({asked['flavour']}) of a runfile"
        )
    try:
        if judged:
            runfile.judge(asked["path"], asked["of"], asked["version"])
        else:
            runfile.install(asked["path"], asked["version"], asked["options"])
    except Failed as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=not judged)


if __name__ == "__main__":
    main()
