"""Start or restart openibd, which loads OFED's kernel modules.

Where modules are loaded that are not OFED's, those that hold ib_core are unloaded first and openibd is
restarted; one that does not leave ends the task before openibd is touched. Otherwise it is started, if it did
not run.
In check mode it is said.

unit: The unit.
replace: Modules that are loaded and not OFED's. An empty list restarts nothing.
unload: Modules that hold ib_core, and leave before a restart where they are loaded.
start: Whether it did not run, and should.
left: What is wrong after its start, as gpuprov has found; the task fails with it, but not in check mode.

Returns:
msg: What was done, or would be. (changed)
"""

from __future__ import annotations

from .. import openibd
from ..module import AnsibleModule

NAMES = {"type": "list", "elements": "str", "default": []}
OPTIONS = {
    "unit": {"type": "str", "required": True},
    "replace": NAMES,
    "unload": NAMES,
    "start": {"type": "bool", "default": False},
    "left": {"type": "str", "default": ""},
}


def run(module: AnsibleModule) -> None:
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
