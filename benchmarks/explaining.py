"""`gpuprov explain -` beside a plain loop with one regular expression: python -m benchmarks.explaining [MEBIBYTES]

The log is made up of lines as a host and a job print them, and one message in 20,000 lines. Both read the same file;
the memory is what reading adds.
"""

from __future__ import annotations

import random
import re
import resource
import sys
import tempfile
import time
from pathlib import Path

from gpuprov.explain.messages import symptoms_in

LINES = (
    "Nov 28 10:{0:02d}:{1:02d} gpu{2:02d} systemd[1]: Started Session {0} of user root.",
    "[{0:5d}.{1:06d}] pcieport 0000:{2:02x}:01.0: bridge window [mem 0x{1:x}]",
    "2026-11-28T10:{0:02d}:{1:02d} gpu{2:02d} kubelet[1234]: I1128 reconciler.go:{0} VerifyControllerAttachedVolume "
    "started",
    "gpu{2:02d}:{0}:{1} [{2}] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read",
    "Nov 28 10:{0:02d}:{1:02d} gpu{2:02d} sshd[{0}]: Accepted publickey for root from 10.0.0.1 port 22 ssh2",
)
MESSAGE = "NVRM: Xid (PCI:0000:3b:00): 79, pid=0, GPU has fallen off the bus."


def write(path: Path, mebibytes: int) -> None:
    drawn = random.Random(1)
    part = [drawn.choice(LINES).format(*(drawn.randrange(60) for _ in range(3))) for _ in range(20_000)]
    part[5_000] = MESSAGE
    data = ("\n".join(part) + "\n").encode()
    with path.open("wb") as file:
        while file.tell() < mebibytes << 20:
            file.write(data)


def main() -> None:
    mebibytes = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "log")
        write(path, mebibytes)
        symptoms_in(MESSAGE)  # the catalogue is read once
        plain = re.compile(rb"fallen off the bus")
        started = time.perf_counter()
        with path.open("rb") as file:
            hits = sum(1 for line in file if plain.search(line))
        loop = time.perf_counter() - started
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        started = time.perf_counter()
        with path.open("rb") as file:
            seen = symptoms_in(file)
        took = time.perf_counter() - started
        more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    if {one.count for one in seen} != {hits}:
        raise SystemExit(f"the loop counts {hits}, explain {[(one.symptom.key, one.count) for one in seen]}")
    sys.stdout.write(
        f"{mebibytes} MiB: a loop with one regular expression {loop:.2f} s; explain {took:.2f} s, {took / loop:.1f} "
        f"times, {took / mebibytes:.3f} s a MiB, {more:.1f} MiB more memory\n"
    )


if __name__ == "__main__":
    main()
