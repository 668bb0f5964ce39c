"""openibd of OFED on this host: started, or restarted after the modules that hold ib_core were unloaded."""

from __future__ import annotations

import subprocess
from typing import Sequence

from .failed import Failed
from .running_kernel import list_loaded
from .units import restart


def bring(unit: str, unload: Sequence[str], *, again: bool) -> None:
    """Start it; or restart it (`again`), after unloading these modules if they are loaded. Raises Failed."""
    for name in list_loaded(unload) if again else ():
        done = subprocess.run(["modprobe", "-r", name], stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if done.returncode:
            message = " ".join(done.stderr.decode(errors="replace").split())
            raise Failed(f"{name} cannot be unloaded, and openibd was not restarted{f': {message}' if message else ''}")
    status, lines = restart(unit, "restart" if again else "start")
    if status:
        own_lines = [line for line in lines if not line.startswith(f"{unit}:")]
        raise Failed(f"{unit} failed: {'; '.join(own_lines[-2:]) or f'systemctl ended with {int(status)}'}")
