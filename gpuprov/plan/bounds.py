"""Memory that Ansible's process of one task may take: a host that prints without end costs its own task, and no other host.

Ansible keeps all that a task prints until it ends. Without a limit, the machine's memory would end, and the whole run with it.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Any

STATUS = "/proc/self/status"
MOST = 2 << 30
"""Bytes beside what is there when the process starts. A package of modules that a build host hands over takes some hundred MiB."""
WITHOUT_WORD = "Task failed."
"""All that Ansible says of a process of its own that had no memory left."""
SPENT = f"Ansible says no more, as where its process had no memory left ({MOST >> 30} GiB): the host may have printed without end"


def bound_memory() -> None:
    """Have a limit in each process that Ansible starts for a task, on Linux. An Ansible without such processes is left as it is."""
    from ansible.executor.process.worker import WorkerProcess

    run = getattr(WorkerProcess, "run", None)
    if run is None or not os.path.exists(STATUS):
        return

    def bounded(worker: Any) -> Any:
        _limit(MOST)
        return run(worker)

    WorkerProcess.run = bounded


def _limit(more: int) -> None:
    """RLIMIT_DATA counts what a process may write to and shares with no other since Linux 4.7 (setrlimit(2)); a lower limit stays."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = _data() + more
    known = [one for one in (soft, hard) if one != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min([wanted, *known]), hard))


def _data() -> int:
    lines = Path(STATUS).read_text(encoding="utf-8", errors="replace").splitlines()
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmData:")), 0)
