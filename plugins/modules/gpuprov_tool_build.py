#!/usr/bin/python
"""Build a tool of an acceptance from its source."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpuprov_tool_build
short_description: Build nccl-tests or nvbandwidth from an archive on the host
description:
  - The folder is there whole, or as it was. Its file C(built) names the program; what the build says is in FOLDER.log.
  - It is for a build that gpuprov has found to be needed, so that running it is the change. In check mode it is said, and not run.
author: gpuprov
options:
  name:
    description: What it is.
    type: str
    choices: [nccl, nvbandwidth]
    required: true
  archive:
    description: Its source, on the host.
    type: path
    required: true
  folder:
    description: Where it goes.
    type: path
    required: true
  program:
    description: The program that the build has to make.
    type: str
    required: true
  mpi:
    description: Whether it is built with MPI.
    type: bool
    default: false
"""
EXAMPLES = r"""
- name: Build nccl-tests
  gpuprov_tool_build: {name: nccl, archive: /opt/nccl.archive, folder: /opt/nccl, program: all_reduce_perf}
"""
RETURN = r"""
msg:
  description: What was built, or would be.
  type: str
  returned: always
"""

from ansible.module_utils.gpuprov_onhost import tool_build
from ansible.module_utils.gpuprov_onhost.module import AnsibleModule


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "choices": ["nccl", "nvbandwidth"], "required": True},
            "archive": {"type": "path", "required": True},
            "folder": {"type": "path", "required": True},
            "program": {"type": "str", "required": True},
            "mpi": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    name, archive, folder, program = (module.params[key] for key in ("name", "archive", "folder", "program"))
    if module.check_mode:
        module.exit_json(changed=True, msg=f"would build {name} in {folder}")
    try:
        tool_build.build(name, archive, folder, program, mpi=module.params["mpi"])
    except (tool_build.Failed, OSError) as error:
        hint = f"see {folder}.log there; it needs a CUDA toolkit that fits the driver"
        module.fail_json(msg=f"{name} could not be built: {error}. Fix: {hint}")
    module.exit_json(changed=True, msg=f"{name} was built in {folder}")


if __name__ == "__main__":
    main()
