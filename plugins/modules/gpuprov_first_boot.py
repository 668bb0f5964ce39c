#!/usr/bin/python
"""Have a host that does not come up from a reboot start again as it was."""

from __future__ import annotations

DOCUMENTATION = """
module: gpuprov_first_boot
short_description: Count the first boot into what was changed, so that the bootloader starts what was before if it fails
description:
  - Keeps the running kernel, its initramfs and its command line before anything is changed, and has the bootloader start them where
    the first boot into the new state is not found to be good. The site's own default stays as it is.
  - Where the bootloader cannot count, nothing is done, and RV(msg) says why.
author: gpuprov
options:
  state:
    description:
      - C(kept) before anything is changed; C(counted) before the reboot; C(judged) after it, which fails where the host had to go
        back; C(dropped) where no reboot is to come.
    type: str
    choices: [kept, counted, judged, dropped]
    required: true
  run:
    description: The run that changes the host.
    type: str
    default: by-hand
"""
EXAMPLES = """
- name: Keep what the host runs by
  gpuprov_first_boot: {state: kept, run: "{{ gpuprov_mark }}"}
"""
RETURN = """
msg:
  description: Why the next boot is not counted.
  type: str
  returned: it is not
"""

import inspect
import subprocess
import sys

from ansible.module_utils.gpuprov_onhost import (
    first_boot,
    first_boot_grub,
    first_boot_judge,
    first_boot_systemd,
    first_boot_tools,
)
from ansible.module_utils.gpuprov_onhost.module import AnsibleModule

PROGRAMS = (first_boot_judge, first_boot_tools, first_boot_grub, first_boot_systemd)

SPEC = {
    "state": {"type": "str", "choices": ["kept", "counted", "judged", "dropped"], "required": True},
    "run": {"type": "str", "default": "by-hand"},
}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    state, why = module.params["state"], ""
    if module.check_mode:
        module.exit_json(changed=False)
    try:
        if state == "judged" and (wrong := first_boot.came_up()):
            module.fail_json(msg=wrong)
        if state == "kept":
            why = first_boot.keep(module.params["run"])
        elif state == "counted":
            why = first_boot.count(
                {part.__name__.rpartition(".")[2]: inspect.getsource(part) for part in PROGRAMS}, sys.executable
            )
        elif state == "dropped":
            first_boot.no_reboot()
    except (OSError, ValueError, LookupError, subprocess.SubprocessError) as error:
        module.fail_json(msg=f"the first boot cannot be counted: {error}")
    if why:
        module.warn(f"if the next boot fails, the host does not go back by itself: {why}")
    module.exit_json(changed=False)


if __name__ == "__main__":
    main()
