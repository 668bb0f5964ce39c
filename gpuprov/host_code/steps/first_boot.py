"""Make the bootloader fall back to the previous system if the first boot after a change fails.

Keeps the running kernel, its initramfs and its command line before anything is changed; the bootloader starts these
if the first boot into the new state is not found to be good. The site's own default entry is not changed.
If the bootloader cannot count boots, nothing is done and a warning gives the reason.

state: `kept` before anything is changed; `counted` before the reboot; `judged` after it, which fails if the host fell
    back; `dropped` if no reboot follows.
run: The run that changes the host.

Returns:
msg: The reason why the next boot is not counted. (it is not)
"""

from __future__ import annotations

import inspect
import subprocess
import sys

from .. import first_boot, first_boot_grub, first_boot_judge, first_boot_systemd, first_boot_tools
from ..module import AnsibleModule

PROGRAMS = (first_boot_judge, first_boot_tools, first_boot_grub, first_boot_systemd)

OPTIONS = {
    "state": {"type": "str", "choices": ["kept", "counted", "judged", "dropped"], "required": True},
    "run": {"type": "str", "default": "by-hand"},
}


def run(module: AnsibleModule) -> None:
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
