#!/usr/bin/python
"""Run AWS's EFA installer, or load the driver that it brought."""

from __future__ import annotations

DOCUMENTATION = """
module: gpuprov_efa
short_description: Run AWS's EFA installer where it has not run yet, or load the driver that it brought
description:
  - V(state=installed) runs efa_installer.sh of an archive on the host, unless it was run from the same archive with the same options.
    The archive's checksum is compared before anything of it is run.
  - V(state=loaded) loads the kernel's module efa, in the place of another build that is loaded and not in use.
author: gpuprov
options:
  state:
    description: What to have.
    type: str
    choices: [installed, loaded]
    required: true
  archive:
    description: aws-efa-installer-VERSION.tar.gz on the host. In check mode it need not be there.
    type: str
  sha256:
    description: The archive's checksum.
    type: str
  kmod:
    description: Whether the installer brings the kernel module, too.
    type: bool
    default: true
  plugin:
    description: Whether it brings aws-ofi-nccl.
    type: bool
    default: true
  mpi:
    description: Which Open MPI it brings.
    type: str
    choices: [none, openmpi4, openmpi5, both]
    default: none
"""
EXAMPLES = """
- name: Run the installer
  gpuprov_efa: {state: installed, archive: /var/cache/gpuprov/efa/installer.tar.gz, sha256: "{{ sha256 }}", mpi: openmpi4}
"""
RETURN = """
due:
  description: Why the installer had to run; empty where it had run.
  type: str
  returned: state is installed
reboot:
  description: Why the driver can only be changed by a reboot; empty where that is not so.
  type: str
  returned: state is loaded
"""

from ansible.module_utils.gpuprov_onhost import efa, reasons
from ansible.module_utils.gpuprov_onhost.module import AnsibleModule


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["installed", "loaded"], "required": True},
            "archive": {"type": "str"},
            "sha256": {"type": "str"},
            "kmod": {"type": "bool", "default": True},
            "plugin": {"type": "bool", "default": True},
            "mpi": {"type": "str", "choices": ["none", "openmpi4", "openmpi5", "both"], "default": "none"},
        },
        required_if=[("state", "installed", ("archive", "sha256"))],
        supports_check_mode=True,
    )
    asked = module.params
    try:
        if asked["state"] == "loaded":
            answer = efa.settle(change=not module.check_mode)
            reasons.keep("rdma", answer["reboot"], check=module.check_mode)
            module.exit_json(**answer)
        wanted = efa.options(asked)
        due = efa.due(efa.read(efa.RECORD), asked["sha256"], wanted)
        if due and not module.check_mode:
            efa.install(asked["archive"], asked["sha256"], wanted)
        module.exit_json(changed=bool(due), due=due)
    except (efa.EfaError, OSError) as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
