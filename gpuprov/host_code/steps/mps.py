"""Install and configure MPS control daemons.

Installs the program that the daemons' units start, or brings the daemons to their desired state.
Everything is checked before anything is changed. A daemon with clients is not restarted, which would end them; the
step fails instead.
Limits, priority, partitions and the environment of clients change while a daemon runs.

state: `installed` writes the program and reloads systemd's units; `running` brings the daemons to their desired state.
wanted: The desired state of the daemons, in the format of mps.json.
coming: True if this run changes driver or MIG devices first. As check mode does not change them, it then refuses
    nothing.

Returns:
later: The reason why the daemons have to wait; empty if they do not.
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
            module.exit_json(changed=bool(changed), msg=", ".join(file.path for file in changed))
        answer, warnings = mps_program.carry_out(module.params["wanted"], check=module.check_mode)
    except Refused as error:
        module.fail_json(msg=str(error))
    for line in warnings:
        module.warn(line)
    scope = module.params["wanted"]["scope"]
    if answer.problem and not (module.check_mode and module.params["coming"]):
        module.fail_json(msg=answer.problem)
    lines = list(answer.changed)
    if answer.problem:
        lines = [
            f"the MPS daemons of scope {scope} are started when driver and MIG devices are there ({answer.problem})"
        ]
    elif answer.later and scope != "none":
        lines.append(f"the MPS daemons start when the driver is loaded: {answer.later}")
    shown = {"diff": {"prepared": "\n".join([*lines, ""])}} if lines else {}
    module.exit_json(changed=bool(answer.changed or answer.problem), msg="; ".join(lines), later=answer.later, **shown)
