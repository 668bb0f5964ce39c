#!/usr/bin/python
"""The MPS control daemons of a host, and the program of their units."""

from __future__ import annotations

DOCUMENTATION = """
module: gpuprov_mps
short_description: MPS control daemons as they should be
description:
  - Installs the program that the units of the daemons start, or makes the daemons what is wanted.
  - Everything is judged before anything is changed. A daemon that has clients is not restarted, which would end them; the module
    fails.
  - Limits, priority, partitions and the environment of clients change while a daemon runs.
author: gpuprov
options:
  state:
    description: C(installed) writes the program, and has systemd read its units; C(running) makes the daemons what is wanted.
    type: str
    choices: [installed, running]
    required: true
  wanted:
    description: What the daemons should be, as mps.json has it.
    type: dict
    default: {}
  coming:
    description: Whether this run changes driver or MIG devices before. Check mode, which does not, refuses nothing then.
    type: bool
    default: false
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
"""

EXAMPLES = """
- name: Make the daemons what the spec says
  gpuprov_mps:
    state: running
    wanted: "{{ gpuprov_judged.desired.mps.wanted }}"
"""

RETURN = """
later:
  description: Why the daemons have to wait; empty if they do not.
  type: str
  returned: success
"""

from ansible.module_utils.gpuprov_onhost import mps_program
from ansible.module_utils.gpuprov_onhost.files import Refused
from ansible.module_utils.gpuprov_onhost.module import AnsibleModule


def main() -> None:
    options = {
        "state": {"type": "str", "choices": ["installed", "running"], "required": True},
        "wanted": {"type": "dict", "default": {}},
        "coming": {"type": "bool", "default": False},
    }
    module = AnsibleModule(options, supports_check_mode=True)
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


if __name__ == "__main__":
    main()
