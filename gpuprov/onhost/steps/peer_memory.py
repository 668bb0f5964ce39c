"""Have a kernel module for peer memory loaded with its parameters, and no other beside it.

Restarts the unit that loads it, where it is not loaded, or with other parameters, or where the other module is
loaded.
On a host that waits for a reboot nothing is done.
Of a module that does not load, it says what the kernel said, what that means, and the fix.

name: The module.
other: The module that may not be loaded beside it.
unit: The unit that loads it.
parameters: Values of its parameters by name.
causes: What messages of the kernel mean. The first whose `text`, a regular expression, fits, is told.
    text: A regular expression.
    cause: What it means.
    way: The fix.

Returns:
differs: What was not as it should be.
"""

from __future__ import annotations

from .. import peer_memory, reasons
from ..module import AnsibleModule

CAUSE = {name: {"type": "str", "required": True} for name in ("text", "cause", "way")}
OPTIONS = {
    "name": {"type": "str", "required": True},
    "other": {"type": "str", "default": ""},
    "unit": {"type": "str", "required": True},
    "parameters": {"type": "dict", "default": {}},
    "causes": {"type": "list", "elements": "dict", "options": CAUSE, "default": []},
}


def run(module: AnsibleModule) -> None:
    asked = module.params
    name, other = asked["name"], asked["other"]
    parameters = {key: str(value) for key, value in asked["parameters"].items()}
    try:
        found = [] if reasons.known() else peer_memory.differences(name, other, parameters)
        if found and not module.check_mode:
            peer_memory.load(asked["unit"], name, other, parameters, asked["causes"])
    except peer_memory.Failed as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"{name}: {error}. Fix: systemctl status {asked['unit']}, on the host")
    told = f"{'would load' if module.check_mode else 'loaded'} {name} ({', '.join(found)})"
    module.exit_json(changed=bool(found), differs=found, **({"msg": told} if found else {}))
