#!/usr/bin/python
"""A command that Python decided on: run, or in check mode said."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpuprov_command
short_description: Run a command that was found to be needed
description:
  - For a change that a program of the host makes, and that gpuprov's checks found to be needed, so that running it is the change.
  - In check mode it is said, and not run.
author: gpuprov
options:
  argv:
    description: The program and its arguments. An empty list runs nothing.
    type: list
    elements: str
    required: true
  hint:
    description: The way out, if it fails.
    type: str
    default: correct what it reports, then apply again
  tolerate:
    description: What it means that it failed, which is then a warning and no error; empty where it is one.
    type: str
    default: ""
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
"""

EXAMPLES = r"""
- name: Label the node
  gpuprov_command:
    argv: [kubectl, label, node, gpu1, nvidia.com/mig.config=gpuprov]
"""

RETURN = r"""
stdout:
  description: What it printed.
  type: str
  returned: when it was run
"""

from shlex import quote

from ansible.module_utils.gpuprov_onhost.module import AnsibleModule


def main() -> None:
    options = {
        "argv": {"type": "list", "elements": "str", "required": True},
        "hint": {"type": "str", "default": "correct what it reports, then apply again"},
        "tolerate": {"type": "str", "default": ""},
    }
    module = AnsibleModule(options, supports_check_mode=True)
    argv = module.params["argv"]
    if not argv:
        module.exit_json(changed=False)
    shown = " ".join(quote(word) for word in argv)
    if module.check_mode:
        module.exit_json(changed=True, msg=f"would run: {shown}")
    status, out, error = module.run_command(argv, expand_user_and_vars=False)
    if status:
        said = (error.strip() or out.strip() or f"status {int(status)}").splitlines()[-1]
        if module.params["tolerate"]:
            module.warn(f"{shown}: {said}; {module.params['tolerate']}")
            module.exit_json(
                changed=True, stdout=out, stderr=error
            )  # with a status of its own, Ansible would call it failed
        module.fail_json(msg=f"{shown}: {said}. Fix: {module.params['hint']}", rc=status, stdout=out, stderr=error)
    module.exit_json(changed=True, stdout=out, stderr=error, rc=status)


if __name__ == "__main__":
    main()
