"""Load a kernel module for peer memory with its parameters, and unload its alternative.

Restarts the unit that loads the module if it is not loaded, is loaded with other parameters, or its alternative is
loaded.
On a host with a pending reboot nothing is done.
If the module does not load, the error gives the kernel's message, its meaning and the fix.

name: The module.
other: The module that must not be loaded beside it.
unit: The unit that loads the module.
parameters: The module's parameters, value by name.
causes: Meanings of kernel messages. The first whose `text` matches is reported.
    text: A regular expression.
    cause: The meaning of the message.
    way: The fix.

Returns:
differs: The differences that were found.
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
    params = module.params
    name, other = params["name"], params["other"]
    parameters = {key: str(value) for key, value in params["parameters"].items()}
    try:
        differences = [] if reasons.read_reasons() else peer_memory.list_differences(name, other, parameters)
        if differences and not module.check_mode:
            peer_memory.load(params["unit"], name, other, parameters, params["causes"])
    except OSError as error:
        module.fail_json(msg=f"{name}: {error}. Fix: systemctl status {params['unit']}, on the host")
    message = f"{'would load' if module.check_mode else 'loaded'} {name} ({', '.join(differences)})"
    module.exit_json(changed=bool(differences), differs=differences, **({"msg": message} if differences else {}))
