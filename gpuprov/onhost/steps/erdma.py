"""Run Alibaba's eRDMA installer, or build its driver for kernels that lack it.

`state=installed` compares the archive's checksum, unpacks it and runs its install.sh; which one ran is
recorded, and the archive leaves.
`state=built` has DKMS build and install the driver for each kernel. What was built before is put back where a
build fails.
In check mode it is said.

state: What to have.
archive: erdma_installer-VERSION.tar.gz on the host.
sha256: Its checksum.
named: What the spec calls it, for messages.
mode: The mode that the driver is to run in, for the record.
kernels: Kernels to build for, or that check mode names.
environment: What the driver's build is told by variables.

Returns:
msg: What was done, or would be. (changed)
"""

from __future__ import annotations

from .. import erdma
from ..module import AnsibleModule

OPTIONS = {
    "state": {"type": "str", "choices": ["installed", "built"], "required": True},
    "archive": {"type": "path"},
    "sha256": {"type": "str"},
    "named": {"type": "str", "default": ""},
    "mode": {"type": "str", "choices": ["compat", "iwarp"], "default": "compat"},
    "kernels": {"type": "list", "elements": "str", "default": []},
    "environment": {"type": "dict", "default": {}},
}


REQUIRED_IF = [("state", "installed", ("archive", "sha256"))]


def run(module: AnsibleModule) -> None:
    asked = module.params
    kernels, runs = asked["kernels"], asked["state"] == "installed"
    if not runs and not kernels:
        module.exit_json(changed=False)
    what = f"run install.sh of {asked['named']}" if runs else "build the eRDMA driver"
    told = f"{what}, for {' '.join(kernels)}"
    if module.check_mode:
        module.exit_json(changed=True, msg=f"would {told}")
    environment = {name: str(value) for name, value in asked["environment"].items()}
    try:
        if runs:
            erdma.install(asked["archive"], asked["sha256"], asked["mode"], environment)
        else:
            erdma.build(kernels, environment)
    except erdma.Failed as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"{what}: {error}. Fix: see the file system of the host")
    module.exit_json(changed=True, msg=f"did {told}")
