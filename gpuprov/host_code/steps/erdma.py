"""Run Alibaba's eRDMA installer, or build its driver for kernels that lack it.

`installed` verifies the archive's checksum, unpacks it and runs its install.sh; the installed version is recorded and
the archive deleted.
`built` lets DKMS build and install the driver for each kernel. If a build fails, the previous build is restored.
Check mode only reports the change.

state: The action.
archive: Path of erdma_installer-VERSION.tar.gz on the host.
sha256: The archive's checksum.
named: The installer's name in the spec, for messages.
mode: The mode that the driver is to run in, for the record.
kernels: Kernels to build for; check mode reports them.
environment: Environment variables of the driver's build.

Returns:
msg: The change made, or in check mode pending. (changed)
"""

from __future__ import annotations

from .. import erdma, files
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
    params = module.params
    kernels, runs = params["kernels"], params["state"] == "installed"
    if not runs and not kernels:
        module.exit_json(changed=False)
    what = f"run install.sh of {params['named']}" if runs else "build the eRDMA driver"
    action = f"{what}, for {' '.join(kernels)}"
    if module.check_mode:
        module.exit_json(changed=True, msg=f"would {action}")
    environment = {name: str(value) for name, value in params["environment"].items()}
    try:
        if runs:
            erdma.install(params["archive"], params["sha256"], params["mode"], environment)
        else:
            erdma.build(kernels, environment)
    except OSError as error:
        module.fail_json(msg=f"{what}: {files.explain(error)}")
    module.exit_json(changed=True, msg=f"did {action}")
