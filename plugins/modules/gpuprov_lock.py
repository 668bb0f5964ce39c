#!/usr/bin/python
"""Take or give back the lock of a host."""

from __future__ import annotations

DOCUMENTATION = """
module: gpuprov_lock
short_description: Take or give back the lock by which one run at a time works on a host
description:
  - The lock is the folder /run/gpuprov/lock; gpuprov takes the same one without Ansible, for an acceptance and after
    Ctrl-C.
  - Taken again by the same run it stays. The lock of a run of this controller whose process has ended is taken over,
    with a warning; so is one that O(break_lock) names. Any other is an error that says its id, by whom it is held, and
    since when.
  - A lock whose O(run) has a lease is another run's to take when its holder has not been heard of for so long, and
    nothing runs any more that it started. What goes through RV(guard) renews the lease, and is refused once the lock
    was taken over.
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
guard:
  description: The program through which the run has others run on the host. It runs Python with its arguments, or,
    after "--", another. Once the lock was taken over it fails, and says by whom.
  type: str
  returned: the lock was taken
taken:
  description: Whether the run holds the lock.
  type: bool
  returned: state is taken
released:
  description: Whether the run has held the lock, and gave it back.
  type: bool
  returned: state is released
"""

import errno
import os

from ansible.module_utils.gpuprov_host_code import guard, lock
from ansible.module_utils.gpuprov_host_code.fence import Owner, Taken
from ansible.module_utils.gpuprov_host_code.module import AnsibleModule


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
    params = module.params
    if module.check_mode:
        module.exit_json(changed=False, skipped=True)
    try:
        if params["state"] == "taken":
            answer = lock.take(params["run"], params["break_lock"], params["stale"])
            module.exit_json(changed=False, **answer, **_guard(params["run"], answer))
        module.exit_json(changed=False, released=lock.release_lock(params["run"]))
    except OSError as error:
        what = "taken" if params["state"] == "taken" else "given back"
        module.fail_json(
            msg=f"the lock of this host cannot be {what}: {error}; nothing was changed. Fix: {_fix(error)}, then "
            "apply again"
        )


def _guard(run: Owner, answer: Taken) -> dict[str, str]:
    if not answer["taken"]:
        return {}
    try:
        return {"guard": guard.write_guard(run, answer["token"])}
    except OSError:
        lock.release_lock(run)
        raise


def _fix(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"make room in {os.path.dirname(error.filename or lock.KEPT)}"
    return "correct what it says"


if __name__ == "__main__":
    main()
