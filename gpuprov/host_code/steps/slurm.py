"""Write Slurm's gres.conf from the GPUs that the host has, by the program that runs before each start of slurmd.

seconds: How long to wait for GPUs that are missing.
"""

from __future__ import annotations

import sys

from ..files import ABOVE
from ..module import AnsibleModule

OPTIONS = {"seconds": {"type": "int", "required": True}}


def run(module: AnsibleModule) -> None:
    if module.check_mode:
        module.exit_json(changed=False, msg="gres.conf is written from the GPUs that the host has after this run")
    argv = [sys.executable, "-B", "-m", "slurm.slurm", "gres", str(int(module.params["seconds"]))]
    status, out, error = module.run_command(argv, environ_update={"PYTHONPATH": ABOVE})
    if status:
        module.fail_json(msg=f"{(error.strip() or out.strip() or f'status {int(status)}').splitlines()[-1]}", rc=status)
    done = [line for line in out.splitlines() if line]
    module.exit_json(changed=bool(done), msg="; ".join(done))
