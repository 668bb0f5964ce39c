"""The processes that nvidia-smi names on GPUs, and whether the host still has them."""

from __future__ import annotations

import re

import msgspec

from gpuprov.probe.base import Output, Probe, ProbeFailed
from gpuprov.probe.gpus.gpu_settings import HERE, SEEN


class Held(msgspec.Struct, frozen=True):
    """A process on a GPU. `state`: its letter in /proc/PID/stat (proc(5)); empty: the host has no such process. D is told only of one
    that was in it a second later, too. `memory`: as nvidia-smi says it. `name`: the kernel's: nvidia-smi
    prints a newline in a name as it is, and with it a process that is not there."""

    gpu: str
    pid: int
    memory: str
    state: str
    name: str


def parse(output: Output) -> tuple[Held, ...]:
    """Raises ProbeFailed where nvidia-smi was not seen to end well: nothing is an answer only then."""
    lines = output.text.splitlines()
    if lines[-1:] != [SEEN]:
        said = " ".join((output.error or output.text).split())[:200]
        raise ProbeFailed(f"the processes on GPUs could not be listed: {said or 'the host gave no whole answer'}")
    found = []
    for line in lines[:-1]:
        state, _, row = line.partition("|")
        row, _, name = row.partition("|")
        cells = [cell.strip() for cell in row.split(",")]
        if len(cells) == 3 and re.fullmatch("[0-9]{1,10}", cells[1]) and re.fullmatch("[A-Za-z]?", state):
            found.append(Held(gpu=cells[0], pid=int(cells[1]), memory=cells[2], state=state, name=name.strip()))
    return tuple(found)


QUERY = "nvidia-smi --query-compute-apps=gpu_bus_id,pid,used_gpu_memory --format=csv,noheader"
PROCESSES = Probe(
    "gpu_processes",
    f"""{HERE}a=$({QUERY} 2>&1) || {{ echo "$a"; exit 1; }}
s() {{ tr '\\n' ' ' 2>/dev/null < "/proc/$1/stat" | sed 's/.*) //; s/ .*//'; }}
printf '%s\\n' "$a" | while IFS= read -r l; do
  p=$(printf '%s\\n' "$l" | cut -d, -f2 | tr -cd 0-9); [ -n "$p" ] || continue
  t=$(s "$p"); case $t in D) sleep 1; [ "$(s "$p")" = D ] || t=S;; esac
  printf '%s|%s|%s\\n' "$t" "$l" "$(tr '\\n|' '  ' 2>/dev/null < "/proc/$p/comm")"
done; echo {SEEN}""",
    parse,
    f"{QUERY}; ps -o pid,stat,comm -p PID; fuser -v /dev/nvidia*",
    blank="looked$",
)
