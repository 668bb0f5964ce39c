#!/usr/bin/python
"""Bring a systemd unit to its desired state, or report why it does not reach it."""

from __future__ import annotations

DOCUMENTATION = """
module: gpuprov_unit
short_description: Look at a daemon, keep it alive with its present program and settings, or run a unit that sets something
description:
  - A daemon is dead, alive, or old, which is alive while its program or its settings have changed since it was started.
  - A failure is reported with what the unit's program said last, from the journal of this start alone.
  - Check mode says what would be done.
author: gpuprov
options:
  name:
    description: The unit; it and O(state) are needed without O(capability).
    type: str
  state:
    description: >-
      observed only looks; alive starts a daemon that is dead and restarts one that is old; renewed restarts one that is
      old, and leaves one that is dead; ran runs a unit that sets something, where O(differs) says what is not set, or
      where it did not run; one that can be reloaded is not restarted; started starts one that does not run, restarted
      also one that does.
    type: str
    choices: [observed, alive, renewed, ran, started, restarted]
  enabled:
    description: Whether it is to be enabled for every boot, with its file as it is now.
    type: bool
    default: false
  process:
    description: The name of a daemon's program among the processes of the unit; empty for the unit's main process.
    type: str
    default: ""
  files:
    description: A daemon's program, and the files or folders of its settings.
    type: list
    elements: str
    default: []
  written:
    description: Files that this run has written, or would write; a daemon that reads one of them is old.
    type: list
    elements: str
    default: []
  ask:
    description: A program that asks what was started, and its arguments. It is asked again for half a minute; not in
      check mode.
    type: list
    elements: str
    default: []
  answer:
    description: A regular expression that is in what O(ask) prints once the daemon answers.
    type: str
    default: ""
  unanswered:
    description: >-
      What it means that no such answer comes: a warning, where it is not in the daemon's hand. Only one that was
      started is asked then. Without it that is a failure.
    type: str
    default: ""
  differs:
    description: What is not as asked for; empty if nothing differs. A daemon that is alive is restarted for it, too.
    type: str
    default: ""
  program:
    description: The name that the unit's program puts before what it says.
    type: str
    default: ""
  fix:
    description: What to do where it fails.
    type: str
    default: correct what it reports, and apply again
  capability:
    description: >-
      The capability whose desired state stands for the other options; more may be given beside it. If it has none for
      O(task), the task is skipped.
    type: str
    default: ""
  task:
    description: The name of the options in that desired state.
    type: str
    default: unit
"""
EXAMPLES = """
- name: Have the exporter alive, with its present settings
  gpuprov_unit: {name: nvidia-dcgm.service, state: alive, enabled: true, files: [/usr/bin/nv-hostengine, /etc/dcgm]}
- name: Set the ports by the unit
  gpuprov_unit: {name: gpuprov-roce.service, state: ran, differs: "mlx5_0 port 1 pfc: none -> 3", program: roce}
"""
RETURN = """
daemon:
  description: dead, alive or old, before anything was done.
  type: str
  returned: state is observed, alive or renewed
"""

from ansible.module_utils.gpuprov_host_code import unit_states
from ansible.module_utils.gpuprov_host_code.module import AnsibleModule

SPEC = {
    "name": {"type": "str"},
    "state": {"type": "str", "choices": ["observed", "alive", "renewed", "ran", "started", "restarted"]},
    "enabled": {"type": "bool", "default": False},
    "process": {"type": "str", "default": ""},
    "files": {"type": "list", "elements": "str", "default": []},
    "written": {"type": "list", "elements": "str", "default": []},
    "ask": {"type": "list", "elements": "str", "default": []},
    "answer": {"type": "str", "default": ""},
    "unanswered": {"type": "str", "default": ""},
    "differs": {"type": "str", "default": ""},
    "program": {"type": "str", "default": ""},
    "fix": {"type": "str", "default": "correct what it reports, and apply again"},
    "capability": {"type": "str", "default": ""},
    "task": {"type": "str", "default": "unit"},
}
NEEDED = [("name", "capability"), ("state", "capability")]


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, required_one_of=NEEDED, supports_check_mode=True)
    if module.params["capability"]:
        module.fail_json(
            msg="gpuprov_unit: capability needs action_plugins of this project where Ansible looks for them"
        )
    name = module.params["name"]
    try:
        answer, warning = unit_states.bring(module.params, check=module.check_mode)
    except unit_states.Failed as error:
        module.fail_json(msg=str(error), **error.details)
    except (OSError, ValueError) as error:
        module.fail_json(
            msg=f"{error}" + ("" if "Fix:" in str(error) else f". Fix: systemctl status {name}, on the host")
        )
    if warning:
        module.warn(warning)
    module.exit_json(**answer)


if __name__ == "__main__":
    main()
