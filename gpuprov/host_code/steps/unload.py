"""Unload kernel modules that are not in use.

Unloads each of the modules that is loaded, and reports those in use, which only a reboot unloads.

modules: Names of the modules. A hyphen counts as an underscore.
capability: The capability that needs a reboot if a module is in use; if empty, no reason is recorded. See step
    `reason`.

Returns:
busy: Modules that are in use.
"""

from __future__ import annotations

from .. import reasons
from .. import running_kernel as kernel
from ..module import AnsibleModule

OPTIONS = {
    "modules": {"type": "list", "elements": "str", "required": True},
    "capability": {"type": "str", "default": ""},
}


def run(module: AnsibleModule) -> None:
    requested = module.params["modules"]
    gone, busy = [], []
    for name in kernel.list_loaded(requested):
        if kernel.unload(name, dry=module.check_mode):
            gone.append(name)
        else:
            busy.append(name)
    if module.params["capability"]:
        verbs = ("is", "leaves") if len(busy) == 1 else ("are", "leave")
        why = f"{' '.join(busy)} {verbs[0]} in use and {verbs[1]} only with a reboot"
        reasons.keep(module.params["capability"], why if busy else "", check=module.check_mode)
    diff = {
        "before": "".join(f"{name}: loaded\n" for name in gone),
        "after": "".join(f"{name}: not loaded\n" for name in gone),
    }
    module.exit_json(changed=bool(gone), busy=busy, diff=diff)
