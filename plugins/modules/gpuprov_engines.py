#!/usr/bin/python
"""Bring NVIDIA's runtime into container engines."""

from __future__ import annotations

DOCUMENTATION = """
module: gpuprov_engines
short_description: Bring NVIDIA's runtime into container engines, by the host's own nvidia-ctk
description:
  - What is decided, is decided by gpuprov beside Ansible; this module takes single steps on the host.
  - A change that would lose a setting of the site's is undone and refused. Files from before the last change stay in
    /var/lib/gpuprov/container_toolkit/ENGINE.
  - Check mode says what an engine lacks.
author: gpuprov
options:
  state:
    description: >-
      registered has the runtime in the engines' files; in_force has the daemons take it, docker by reload, the others by restart;
      restarted restarts docker, too, where it takes it only so.
    type: str
    choices: [registered, in_force, restarted]
    required: true
  names:
    description: docker, containerd or crio.
    type: list
    elements: str
    required: true
  users:
    description: Users whose own docker gets the runtime, too (registered).
    type: list
    elements: str
    default: []
  default:
    description: Whether it is the runtime of every container.
    type: bool
    default: false
  drop_ins:
    description: Whether nvidia-ctk is of a release that writes files beside the main one.
    type: bool
    default: true
  drained:
    description: Whether a restart of docker may stop containers, since a drain command is given.
    type: bool
    default: false
  step:
    description: What the action has the module do on the host.
    type: str
    default: ""
  given:
    description: What the step is done with.
    type: dict
    default: {}
"""
EXAMPLES = """
- name: Have the runtime in the files of docker
  gpuprov_engines: {state: registered, names: [docker]}
- name: Have the daemon take it
  gpuprov_engines: {state: in_force, names: [docker]}
"""
RETURN = """
restart:
  description: Engines that take it only by a restart, which has not been done yet.
  type: list
  elements: str
  returned: always
"""

from ansible.module_utils.gpuprov_onhost.engine_steps import STEPS
from ansible.module_utils.gpuprov_onhost.module import AnsibleModule
from ansible.module_utils.gpuprov_onhost.rootless import Refused


def main() -> None:
    options = {
        "state": {"type": "str", "choices": ["registered", "in_force", "restarted"], "required": True},
        "names": {"type": "list", "elements": "str", "required": True},
        "users": {"type": "list", "elements": "str", "default": []},
        "default": {"type": "bool", "default": False},
        "drop_ins": {"type": "bool", "default": True},
        "drained": {"type": "bool", "default": False},
        "step": {"type": "str", "default": ""},
        "given": {"type": "dict", "default": {}},
    }
    module = AnsibleModule(options, supports_check_mode=True, no_log=True)  # texts of the site's files are among them
    step = STEPS.get(module.params["step"])
    if step is None:
        module.fail_json(
            msg="gpuprov_engines is an action: action_plugins of this project must be where Ansible looks for them"
        )
    try:
        module.exit_json(changed=True, answer=step(**module.params["given"]))
    except Refused as refused:
        way_out = "repair it, or take the engine out of container_toolkit.runtimes, the user out of container_toolkit.rootless"
        module.fail_json(msg=f"{refused}. Fix: {way_out}")
    except OSError as error:
        module.fail_json(msg=f"{error}. Fix: see the file system of the host")


if __name__ == "__main__":
    main()
