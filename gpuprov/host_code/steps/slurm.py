"""Write Slurm's gres.conf from the GPUs that the host has, and have a running slurmd read its files.

The program that runs before each start of slurmd writes the file. This step runs it, and restarts a slurmd that runs
and is older than its files. Jobs go on meanwhile. A slurmd that does not run is not started.

seconds: How long to wait for GPUs that are missing.
"""

from __future__ import annotations

import os
import sys
import time

from ..files import ABOVE
from ..module import AnsibleModule

OPTIONS = {"seconds": {"type": "int", "required": True}}
UNIT = "slurmd.service"
FILES = ("/etc/slurm/gres.conf", "/etc/slurm/cgroup.conf")


def run(module: AnsibleModule) -> None:
    if module.check_mode:
        module.exit_json(changed=False, msg="gres.conf is written from the GPUs that the host has after this run")
    argv = [sys.executable, "-B", "-m", "slurm.slurm", "gres", str(int(module.params["seconds"]))]
    status, out, error = module.run_command(argv, environ_update={"PYTHONPATH": ABOVE})
    if status:
        module.fail_json(msg=f"{(error.strip() or out.strip() or f'status {int(status)}').splitlines()[-1]}", rc=status)
    done = [line for line in out.splitlines() if line]
    if is_old(module):
        status, _, error = module.run_command(["systemctl", "try-restart", UNIT])
        if status:
            module.fail_json(
                msg=f"{UNIT} does not restart: {error.strip()}. Fix: journalctl -u {UNIT} -n 20, on the host"
            )
        done.append(f"restarted {UNIT}")
    module.exit_json(changed=bool(done), msg="; ".join(done))


def is_old(module: AnsibleModule) -> bool:
    """Return whether slurmd runs, and was started before its files were last written."""
    _, shown, _ = module.run_command(
        ["systemctl", "show", "-p", "MainPID", "-p", "ExecMainStartTimestampMonotonic", UNIT]
    )
    values = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
    if values.get("MainPID", "0") == "0":
        return False
    started = time.time() - time.monotonic() + int(values.get("ExecMainStartTimestampMonotonic") or 0) / 1e6
    return any(os.path.getmtime(path) > started for path in FILES if os.path.exists(path))
