"""The processes that nvidia-smi names on GPUs, whether the host still has them, and whose they are."""

from __future__ import annotations

import re

import msgspec

from gpuprov.probe.base import Output, Probe, ProbeFailed
from gpuprov.probe.gpus.gpu_settings import HERE, SEEN

CONTAINER = re.compile(r"(?<!conmon-)\b[0-9a-f]{64}\b")
"""The name of a container in a cgroup, as docker, containerd, cri-o and podman have it; not that of its monitor's own."""


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """A process on a GPU. `state`: its letter in /proc/PID/stat (proc(5)); empty: the host has no such process. D is told only of one
    that was in it a second later, too. `memory`: as nvidia-smi says it. `name`: the kernel's: nvidia-smi
    prints a newline in a name as it is, and with it a process that is not there. `job`: the Slurm job that it was started in.
    `container`: it is in a container's cgroup; `orphan`: so is the last of its parents before process 1, where a runtime's monitor
    would be."""

    gpu: str
    pid: int
    memory: str
    state: str
    name: str
    job: int | None = None
    container: bool = False
    orphan: bool = False


class Processes(msgspec.Struct, frozen=True, kw_only=True):
    """`held`: what is on GPUs. `used`: MiB of each GPU's memory, by its address. `slurmd`: whether this host is a node of Slurm that
    is up; `jobs`: those of which a step runs here, looked for only where something on a GPU was started in a job."""

    held: tuple[Held, ...] = ()
    used: dict[str, int] = {}
    slurmd: bool = False
    jobs: frozenset[int] = frozenset()


def parse(output: Output) -> Processes:
    """Raises ProbeFailed where nvidia-smi was not seen to end well: nothing is an answer only then."""
    lines = output.text.rstrip("\n").split(
        "\n"
    )  # nothing else ends a line: a name may have what else splitlines takes for its end
    if lines[-1:] != [SEEN]:
        said = " ".join((output.error or output.text).split())[:200]
        raise ProbeFailed(f"the processes on GPUs could not be listed: {said or 'the host gave no whole answer'}")
    whose: dict[int, list[str]] = {}
    used: dict[str, int] = {}
    jobs: set[int] = set()
    for kind, _, row in (line.partition("|") for line in lines):
        cells = row.split("|")
        if kind == "@of" and len(cells) == 4 and re.fullmatch("[0-9]{1,10}", cells[0]):
            whose[int(cells[0])] = cells[1:]
        elif kind == "@memory" and (match := re.fullmatch(r"([0-9A-Fa-f:.]{12,16}), ([0-9]{1,9})", row.strip())):
            used[match[1]] = int(match[2])
        elif kind == "@step" and (match := re.match(r"slurmstepd: \[([0-9]{1,10})[.\]]", row)):
            jobs.add(int(match[1]))
    held = []
    for line in lines[:-1]:
        state, _, row = line.partition("|")
        row, _, name = row.partition("|")
        cells = [cell.strip() for cell in row.split(",")]
        if len(cells) == 3 and re.fullmatch("[0-9]{1,10}", cells[1]) and re.fullmatch("[A-Za-z]?", state):
            pid = int(cells[1])
            one = Held(gpu=cells[0], pid=pid, memory=cells[2], state=state, name=name.strip())
            held.append(_owned(one, *whose[pid]) if pid in whose else one)
    return Processes(held=tuple(held), used=used, slurmd="@slurmd" in lines, jobs=frozenset(jobs))


def _owned(one: Held, job: str, cgroup: str, oldest: str) -> Held:
    """A job's number is in a cgroup of Slurm's own making, else in what the process was started with; but that of a heterogeneous
    job (SLURM_HET_SIZE) may be of another component, which runs elsewhere."""
    made = re.search(r"/job_([0-9]{1,10})/step_", cgroup)
    started = re.fullmatch(r"SLURM_JOB_ID=([0-9]{1,10}) ", job)
    number = made[1] if made else started[1] if started else ""
    inside = CONTAINER.search(cgroup) is not None
    return msgspec.structs.replace(
        one,
        job=int(number) if number else None,
        container=inside,
        orphan=inside and CONTAINER.search(oldest) is not None,
    )


QUERY = "nvidia-smi --query-compute-apps=gpu_bus_id,pid,used_gpu_memory --format=csv,noheader"
USED = "nvidia-smi --query-gpu=pci.bus_id,memory.used --format=csv,noheader,nounits"
PROCESSES = Probe(
    "gpu_processes",
    f"""{HERE}a=$({QUERY} 2>&1) || {{ echo "$a"; exit 1; }}
s() {{ tr '\\n' ' ' 2>/dev/null < "/proc/$1/stat" | sed 's/.*) //; s/ .*//'; }}
g() {{ tr '\\n|' '  ' 2>/dev/null < "/proc/$1/cgroup" | cut -c 1-4000; }}
printf '%s\\n' "$a" | while IFS= read -r l; do
  p=$(printf '%s\\n' "$l" | cut -d, -f2 | tr -cd 0-9); [ -n "$p" ] || continue
  t=$(s "$p"); case $t in D) sleep 1; [ "$(s "$p")" = D ] || t=S;; esac
  printf '%s|%s|%s\\n' "$t" "$l" "$(tr '\\n|' '  ' 2>/dev/null < "/proc/$p/comm")"
  [ -n "$t" ] || continue
  o=$p; q=$p; n=0
  while [ "${{q:-0}}" -gt 1 ] && [ $n -lt 200 ]; do
    o=$q; q=0; n=$((n + 1))
    while read -r k v; do case $k in PPid:) q=$v; break;; esac; done 2>/dev/null < "/proc/$o/status"
  done 2>/dev/null
  j=$(tr '\\0' '\\n' 2>/dev/null < "/proc/$p/environ" | grep -aE '^SLURM_(JOB_ID|HET_SIZE)=[0-9]{{1,10}}$' | tr '\\n' ' ')
  printf '@of|%s|%s|%s|%s\\n' "$p" "$j" "$(g "$p")" "$(g "$o")"
done
timeout 8 {USED} 2>/dev/null | sed 's/^/@memory|/'
case $a in *[0-9]*) for d in /proc/[0-9]*; do
  [ -O "$d" ] && read -r c 2>/dev/null < "$d/comm" || continue
  case $c in slurmd) echo @slurmd; continue;; slurmstepd) ;; *) continue;; esac
  printf '@step|%s\\n' "$(tr '\\0\\n' '  ' 2>/dev/null < "$d/cmdline" | cut -c 1-200)"
done;; esac
echo {SEEN}""",
    parse,
    f"{QUERY}; ps -o pid,stat,comm -p PID; fuser -v /dev/nvidia*",
    blank="looked$",
)
