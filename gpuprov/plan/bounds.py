"""Memory limit for Ansible's process of one task: a host that prints endlessly fails its own task, and affects no other
host.

Ansible keeps all output of a task until the task ends. Without a limit, it would exhaust the machine's memory, and end
the whole run.
"""

import os
import resource
from pathlib import Path
from typing import Any

STATUS = "/proc/self/status"
# Bytes on top of the process's memory at its start. A package of modules supplied by a build host takes some hundred
# MiB.
MOST = 2 << 30
# Ansible's only message about its own process that ran out of memory.
WITHOUT_WORD = "Task failed."
SPENT = (
    f"Ansible says no more, as where its process had no memory left ({MOST >> 30} GiB): the host may have "
    "printed without end"
)


def bound_memory() -> None:
    """Set a limit in each process that Ansible starts for a task, on Linux. An Ansible without such processes is left
    as it is."""
    from ansible.executor.process.worker import WorkerProcess

    run = getattr(WorkerProcess, "run", None)
    if run is None or not os.path.exists(STATUS):
        return

    def bounded(worker: Any) -> Any:
        _set_limit(MOST)
        return run(worker)

    WorkerProcess.run = bounded


def _set_limit(more: int) -> None:
    """Set RLIMIT_DATA, which since Linux 4.7 counts a process's private writable memory (setrlimit(2)); a lower limit
    stays."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    target = _parse_data() + more
    known = [bound for bound in (soft, hard) if bound != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min([target, *known]), hard))


def _parse_data() -> int:
    lines = Path(STATUS).read_text(encoding="utf-8", errors="replace").splitlines()
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmData:")), 0)
