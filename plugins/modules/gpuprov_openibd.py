#!/usr/bin/python
"""Have openibd load OFED's kernel modules, in the place of others where nothing holds them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpuprov_openibd
short_description: Start or restart openibd, which loads OFED's kernel modules
description:
  - Where modules are loaded that are not OFED's, those that hold ib_core are unloaded first and openibd is restarted; one that does
    not leave ends the task before openibd is touched. Otherwise it is started, if it did not run.
  - In check mode it is said.
author: gpuprov
options:
  unit:
    description: The unit.
    type: str
    required: true
  replace:
    description: Modules that are loaded and not OFED's. An empty list restarts nothing.
    type: list
    elements: str
    default: []
  unload:
    description: Modules that hold ib_core, and leave before a restart where they are loaded.
    type: list
    elements: str
    default: []
  start:
    description: Whether it did not run, and should.
    type: bool
    default: false
  left:
    description: What is wrong after its start, as gpuprov has found; the task fails with it, but not in check mode.
    type: str
    default: ""
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
"""

EXAMPLES = r"""
- name: Have OFED's modules in place of the kernel's own
  gpuprov_openibd: {unit: openibd.service, replace: [ib_core, mlx5_core], unload: [nvidia_peermem, ib_srp]}
"""

RETURN = r"""
msg:
  description: What was done, or would be.
  type: str
  returned: changed
"""

from ansible.module_utils.gpuprov_onhost import openibd
from ansible.module_utils.gpuprov_onhost.module import AnsibleModule

NAMES = {"type": "list", "elements": "str", "default": []}
SPEC = {
    "unit": {"type": "str", "required": True},
    "replace": NAMES,
    "unload": NAMES,
    "start": {"type": "bool", "default": False},
    "left": {"type": "str", "default": ""},
}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    asked = module.params
    unit, replace = asked["unit"], asked["replace"]
    if asked["left"] and not module.check_mode:
        module.fail_json(msg=asked["left"])
    if not replace and not asked["start"]:
        module.exit_json(changed=False)
    what = f"restart {unit}, for {', '.join(replace)}" if replace else f"start {unit}"
    if module.check_mode:
        module.exit_json(changed=True, msg=f"would {what}")
    try:
        openibd.bring(unit, asked["unload"], again=bool(replace))
    except openibd.Failed as error:
        way = "journalctl -u openibd, on the host; end what uses RDMA and apply again, or reboot the host"
        module.fail_json(msg=f"{error}. Fix: {way}")
    module.exit_json(changed=True, msg=f"did {what}")


if __name__ == "__main__":
    main()
