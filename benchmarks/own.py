"""A gpuprov command and its own cost, without the programs that it starts: CPU seconds, theirs, and its peak memory in
MiB.

usage: python -m benchmarks.own FILE ARGUMENT... the costs are appended to FILE, as a line of JSON
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

from gpuprov.__main__ import main


def peak() -> int:
    """Return peak memory in KiB. The value of getrusage includes that of the process before it became this program."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))


began = time.monotonic()
file, sys.argv = sys.argv[1], ["gpuprov", *sys.argv[2:]]
try:
    main()
finally:
    sys.stdout.flush()
    own, theirs = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    costs = {
        "own": own.ru_utime + own.ru_stime,
        "theirs": theirs.ru_utime + theirs.ru_stime,
        "mebibytes": peak() / 1024,
        "seconds": time.monotonic() - began,
    }
    with open(file, "a", encoding="utf-8") as out:
        out.write(json.dumps(costs) + "\n")
