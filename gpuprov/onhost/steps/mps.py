"""MPS control daemons as they should be.

Installs the program that the units of the daemons start, or makes the daemons what is wanted.
Everything is judged before anything is changed. A daemon that has clients is not restarted, which would end
them; the module fails.
Limits, priority, partitions and the environment of clients change while a daemon runs.

state: `installed` writes the program, and has systemd read its units; `running` makes the daemons what is
    wanted.
wanted: What the daemons should be, as mps.json has it.
coming: Whether this run changes driver or MIG devices before. Check mode, which does not, refuses nothing then.

Returns:
later: Why the daemons have to wait; empty if they do not.
"""

from __future__ import annotations

from .. import mps_program
from ..files import Refused
from ..module import AnsibleModule

OPTIONS = {
    "state": {"type": "str", "choices": ["installed", "running"], "required": True},
    "wanted": {"type": "dict", "default": {}},
    "coming": {"type": "bool", "default": False},
}


def run(module: AnsibleModule) -> None:
    try:
        if module.params["state"] == "installed":
            changed = mps_program.install(check=module.check_mode)
            module.exit_json(changed=bool(changed), msg=", ".join(one.path for one in changed))
        answer, warnings = mps_program.carry_out(module.params["wanted"], check=module.check_mode)
    except Refused as error:
        module.fail_json(msg=str(error))
    for line in warnings:
        module.warn(line)
    scope = module.params["wanted"]["scope"]
    if answer.problem and not (module.check_mode and module.params["coming"]):
        module.fail_json(msg=answer.problem)
    told = list(answer.changed)
    if answer.problem:
        told = [
            f"the MPS daemons of scope {scope} are started when driver and MIG devices are there ({answer.problem})"
        ]
    elif answer.later and scope != "none":
        told.append(f"the MPS daemons start when the driver is loaded: {answer.later}")
    shown = {"diff": {"prepared": "\n".join([*told, ""])}} if told else {}
    module.exit_json(changed=bool(answer.changed or answer.problem), msg="; ".join(told), later=answer.later, **shown)
