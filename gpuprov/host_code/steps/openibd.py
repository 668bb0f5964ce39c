"""Start or restart openibd, which loads OFED's kernel modules.

If modules are loaded that are not OFED's, the modules that hold ib_core are unloaded and openibd is restarted; a
module that cannot be unloaded fails the step before openibd is touched. Otherwise openibd is started if it was not
running.
Check mode only reports the change.

unit: The unit.
replace: Loaded modules that are not OFED's. If empty, nothing is restarted.
unload: Modules that hold ib_core, which are unloaded before a restart.
start: True if the unit is not running and should be.
left: The problem that gpuprov found after the start; the step fails with it, except in check mode.

Returns:
msg: The change made, or in check mode pending. (changed)
"""

from __future__ import annotations

import subprocess
from typing import Sequence

from ..failed import Failed
from ..module import AnsibleModule
from ..running_kernel import list_loaded
from ..units import restart

NAMES = {"type": "list", "elements": "str", "default": []}
OPTIONS = {
    "unit": {"type": "str", "required": True},
    "replace": NAMES,
    "unload": NAMES,
    "start": {"type": "bool", "default": False},
    "left": {"type": "str", "default": ""},
}


def run(module: AnsibleModule) -> None:
    params = module.params
    unit, replace = params["unit"], params["replace"]
    if params["left"] and not module.check_mode:
        module.fail_json(msg=params["left"])
    if not replace and not params["start"]:
        module.exit_json(changed=False)
    what = f"restart {unit}, for {', '.join(replace)}" if replace else f"start {unit}"
    if module.check_mode:
        module.exit_json(changed=True, msg=f"would {what}")
    try:
        bring(unit, params["unload"], again=bool(replace))
    except Failed as error:
        fix = "journalctl -u openibd, on the host; end what uses RDMA and apply again, or reboot the host"
        module.fail_json(msg=f"{error}. Fix: {fix}")
    module.exit_json(changed=True, msg=f"did {what}")


def bring(unit: str, unload: Sequence[str], *, again: bool) -> None:
    """Start it; or restart it (`again`), after unloading these modules if they are loaded. Raises Failed."""
    for name in list_loaded(unload) if again else ():
        done = subprocess.run(["modprobe", "-r", name], stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if done.returncode:
            message = " ".join(done.stderr.decode(errors="replace").split())
            raise Failed(f"{name} cannot be unloaded, and openibd was not restarted{f': {message}' if message else ''}")
    status, lines = restart(unit, "restart" if again else "start")
    if status:
        own_lines = [line for line in lines if not line.startswith(f"{unit}:")]
        raise Failed(f"{unit} failed: {'; '.join(own_lines[-2:]) or f'systemctl ended with {int(status)}'}")
