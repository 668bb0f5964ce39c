#!/usr/bin/python
"""Take or give back the lock of a host."""

from __future__ import annotations

DOCUMENTATION = """
module: gpuprov_lock
short_description: Take or give back the lock by which one run at a time works on a host
description:
  - The lock is the folder /run/gpuprov/lock; gpuprov takes the same one without Ansible, for an acceptance and after Ctrl-C.
  - Taken again by the same run it stays. The lock of a run of this controller whose process has ended is taken over, with a warning;
    so is one that O(break_lock) names. Any other is an error that says its id, by whom it is held, and since when.
  - In check mode no lock is taken or given back.
author: gpuprov
options:
  state:
    description: Whether the run is to hold the lock.
    type: str
    choices: [taken, released]
    required: true
  run:
    description:
      - What gpuprov says of the run (gpuprov_run), or what this module returned for it as RV(run).
      - Empty describes the ansible-playbook that runs this.
    type: dict
    default: {}
  break_lock:
    description: Ids of locks that may be taken over although their runs may still be alive.
    type: list
    elements: str
    default: []
  stale:
    description: The text of a lock that is known to be left by a dead run. Set by the action plugin.
    type: str
"""
EXAMPLES = """
- name: Take the lock of this host
  gpuprov_lock:
    state: taken
    run: "{{ gpuprov_run | default({}) }}"
    break_lock: "{{ gpuprov_break_lock | default([]) }}"
  register: lock
- name: Release the lock of this host
  gpuprov_lock: {state: released, run: "{{ lock.run }}"}
"""
RETURN = """
run:
  description: The run that asks, as it stands in the lock.
  type: dict
  returned: always
taken:
  description: Whether the run holds the lock.
  type: bool
  returned: state is taken
released:
  description: Whether the run has held the lock, and gave it back.
  type: bool
  returned: state is released
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpuprov_onhost import lock


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["taken", "released"], "required": True},
            "run": {"type": "dict", "default": {}},
            "break_lock": {"type": "list", "elements": "str", "default": []},
            "stale": {"type": "str"},
        },
        supports_check_mode=True,
    )
    asked = module.params
    if module.check_mode:
        module.exit_json(changed=False, skipped=True)
    if asked["state"] == "taken":
        module.exit_json(changed=False, **lock.take(asked["run"], asked["break_lock"], asked["stale"]))
    module.exit_json(changed=False, released=lock.release(asked["run"]["run"]))


if __name__ == "__main__":
    main()
