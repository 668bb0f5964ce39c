#!/usr/bin/python
"""A step on a host that concerns no file, unit, package or package source: a build, a reset, a MIG plan, a drain."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpuprov_step
short_description: Do a step on a GPU host that no module for files, units or packages does
description:
  - Each step is a file of gpuprov/host_code/steps, or of gpuprov/play where it decides on the controller, which says
    what it promises, takes and returns. Its arguments are checked by types, choices and names, as those of a module.
  - The code of one step alone is imported on the host.
author: gpuprov
options:
  name:
    description: The step.
    type: str
    required: true
    choices:
      - boot
      - cdi
      - clients
      - command
      - doca_host
      - drain
      - driver_loaded
      - driver_modules
      - driver_runfile
      - efa
      - elsewhere
      - engines
      - erdma
      - fetch
      - first_boot
      - give_up
      - gpu_settings
      - hpcx
      - leftovers
      - mig
      - mps
      - openibd
      - peer_build
      - peer_memory
      - prebuilt
      - reason
      - running_kernel
      - settings
      - slurm
      - tool_build
      - unload
  arguments:
    description: What the step takes, by name.
    type: dict
    default: {}
  capability:
    description: >-
      The capability whose desired state has the arguments; others may be given beside them. If it has none for O(task),
      the task is skipped.
    type: str
    default: ""
  task:
    description: The name of the arguments in that desired state; empty for that of the step.
    type: str
    default: ""
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
"""

EXAMPLES = r"""
- name: Refuse while a user's process holds a GPU
  gpuprov_step:
    name: clients
    arguments: {state: free, services: [nvidia-dcgm.service]}
"""

RETURN = r"""
msg:
  description: What was done, or why it failed. What else a step returns is documented in its file.
  type: str
  returned: where there is something to say
step:
  description: The name of the step.
  type: str
  returned: success
"""

import importlib

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.gpuprov_host_code.failed import Failed
from ansible.module_utils.gpuprov_host_code.module import AnsibleModule

PACKAGE = "ansible.module_utils.gpuprov_host_code.steps"
# Steps that the action plugin does alone.
CONTROLLER = ["drain", "elsewhere", "give_up", "leftovers"]


def bundled() -> None:
    """Never called: AnsiballZ includes whatever a module imports anywhere in its text."""
    from ansible.module_utils.gpuprov_host_code.steps import (  # noqa: F401
        boot,
        cdi,
        clients,
        command,
        doca_host,
        driver_loaded,
        driver_modules,
        driver_runfile,
        efa,
        engines,
        erdma,
        fetch,
        first_boot,
        gpu_settings,
        hpcx,
        mig,
        mps,
        openibd,
        peer_build,
        peer_memory,
        prebuilt,
        reason,
        running_kernel,
        settings,
        slurm,
        tool_build,
        unload,
    )


def main() -> None:
    host = sorted([*bundled.__code__.co_varnames, *CONTROLLER])
    options = {
        "name": {"type": "str", "required": True, "choices": host},
        "arguments": {"type": "dict", "default": {}},
        "capability": {"type": "str", "default": ""},
        "task": {"type": "str", "default": ""},
    }
    module = AnsibleModule(
        options, supports_check_mode=True, no_log=True
    )  # texts of the site's files may be among them
    name = module.step = module.params["name"]
    if name in CONTROLLER or module.params["capability"]:
        module.fail_json(msg=f"step {name} needs action_plugins of this project where Ansible looks for them")
    step = importlib.import_module(f"{PACKAGE}.{name}")
    checked = ArgumentSpecValidator(step.OPTIONS, required_if=getattr(step, "REQUIRED_IF", None)).validate(
        module.params["arguments"]
    )
    if checked.error_messages:
        module.fail_json(msg=f"step {name}: {'; '.join(checked.error_messages)}")
    module.params = checked.validated_parameters
    try:
        step.run(module)
    except Failed as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
