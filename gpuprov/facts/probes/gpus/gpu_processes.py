"""Processes that nvidia-smi lists on GPUs, whether they still exist on the host, and their owners."""

import re

import msgspec

from gpuprov.facts.probes.base import Output, Probe, ProbeFailed
from gpuprov.facts.probes.gpus.gpu_settings import HERE, SEEN

# Pattern of a container's name in a cgroup, for docker, containerd, cri-o and podman; it excludes the cgroup of the
# monitor, which for a podman pod is POD/conmon.
# 0::/system.slice/docker-<64 hexadecimal digits>.scope
CONTAINER = re.compile(r"(?<!conmon-)\b[0-9a-f]{64}\b(?!/conmon\b)")
ENDED = ("", "Z", "X")


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """A process on a GPU."""

    gpu: str
    pid: int
    # As nvidia-smi prints it.
    memory: str
    # Its letter in /proc/PID/stat (proc(5)); empty: the host has no such process. An ended process was checked twice, a
    # second apart, and a hanging one (D) after five seconds in which it did not run; nvidia-smi listed it both times.
    state: str
    # From the kernel, as nvidia-smi prints a newline in a name unescaped, and with it could list a process that does
    # not exist.
    name: str
    # The Slurm job that it was started in.
    job: int | None = None
    # Slurm still manages it, or it no longer exists.
    known: bool = False
    # It is in a container's cgroup.
    container: bool = False
    # So is its last ancestor before process 1, where a runtime's monitor would be.
    orphan: bool = False


class Processes(msgspec.Struct, frozen=True, kw_only=True):
    """All of them."""

    # Processes on GPUs.
    held: tuple[Held, ...] = ()
    # MiB of each GPU's memory, by its address.
    used: dict[str, int] = {}
    # Whether this host is a Slurm node that is up.
    slurmd: bool = False
    # Jobs with a step on this host, and jobs of processes on GPUs that the scheduler has not ended.
    jobs: frozenset[int] = frozenset()
    # The scheduler could not be queried for the latter.
    unasked: bool = False


class _Rest(msgspec.Struct):
    """Contents of the lines with @."""

    whose: dict[int, list[str]] = {}
    used: dict[str, int] = {}
    jobs: set[int] = set()
    # Processes that still ran after the search for steps.
    lives: set[int] = set()
    # The states at the second check, by GPU and process; None without a second check.
    again: dict[tuple[str, int], str] | None = None
    # How often the kernel had scheduled each waiting process, at both checks.
    runs: dict[int, list[str]] = {}


def parse(output: Output) -> Processes:
    """Parse the processes. Raises ProbeFailed unless nvidia-smi completed: an empty list is an answer only then."""
    lines = output.text.rstrip("\n").split(
        "\n"
    )  # nothing else ends a line: a name may have what else splitlines takes for its end
    if lines[-1:] != [SEEN]:
        message = " ".join((output.error or output.text).split())[:200]
        raise ProbeFailed(f"the processes on GPUs could not be listed: {message or 'the host gave no whole answer'}")
    rest = _parse_rest(lines)
    held = []
    for line in lines[:-1]:
        process = _parse_held(line)
        if process is None:
            continue
        if process.state in (*ENDED, "D") and rest.again is not None:
            if (process.gpu, process.pid) not in rest.again:
                continue  # it has ended, and nvidia-smi names it no more
            state = rest.again[process.gpu, process.pid]
            moved = state == process.state == "D" and len(set(rest.runs.get(process.pid, ()))) > 1
            process = msgspec.structs.replace(process, state="S" if moved else state)
        held.append(_add_owner(process, rest.lives, *rest.whose[process.pid]) if process.pid in rest.whose else process)
    marks = {name: f"@{name}" in lines for name in ("slurmd", "unasked")}
    return Processes(held=tuple(held), used=rest.used, jobs=frozenset(rest.jobs), **marks)


def _parse_held(line: str) -> Held | None:
    state, _, row = line.partition("|")
    row, _, name = row.partition("|")
    cells = [cell.strip() for cell in row.split(",")]
    if len(cells) != 3 or not re.fullmatch("[0-9]{1,10}", cells[1]) or not re.fullmatch("[A-Za-z]?", state):
        return None
    return Held(gpu=cells[0], pid=int(cells[1]), memory=cells[2], state=state, name=name.replace("|", " ").strip())


def _parse_rest(lines: list[str]) -> _Rest:
    rest = _Rest()
    for kind, _, row in (line.partition("|") for line in lines):
        cells = row.split("|")
        if kind == "@of" and len(cells) == 5 and re.fullmatch("[0-9]{1,10}", cells[0]):
            rest.whose[int(cells[0])] = cells[1:]
        elif kind == "@memory" and (match := re.fullmatch(r"([0-9A-Fa-f:.]{12,16}), ([0-9]{1,9})", row.strip())):
            rest.used[match[1]] = int(match[2])
        # The title that slurmstepd gives its process: `slurmstepd: [4711.batch]`
        elif kind == "@step" and (match := re.match(r"slurmstepd: \[([0-9]{1,10})[.\] ]", row)):
            rest.jobs.add(int(match[1]))
        elif kind == "@queued" and re.fullmatch("[0-9]{1,10}", row.strip()):
            rest.jobs.add(int(row))
        elif kind == "@lives" and re.fullmatch("[0-9]{1,10}", row):
            rest.lives.add(int(row))
        elif (match := re.fullmatch(r"(?:@twice\|)?@runs\|([0-9]{1,10})\|([0-9 ]+)", f"{kind}|{row}")) is not None:
            rest.runs.setdefault(int(match[1]), []).append(match[2])
        elif kind == "@twice":
            rest.again = {} if rest.again is None else rest.again
            if (process := _parse_held(row)) is not None:
                rest.again[process.gpu, process.pid] = process.state
    return rest


def _add_owner(process: Held, lives: set[int], started: str, under: str, cgroup: str, oldest: str) -> Held:
    """Add job and container to a process. The job's number is in a cgroup that Slurm made, else in the environment that
    the process was started with; for a heterogeneous job (SLURM_HET_SIZE) the latter may belong to another component,
    which runs elsewhere. `under`: root's slurmd, step or MPS is among its ancestors; then it belongs to a prolog, an
    epilog or the step, or to MPS, which a prolog may start for one job and leave for the next:
    https://github.com/SchedMD/slurm/blob/master/etc/prolog.example"""
    # 0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0
    made = re.search(r"/job_([0-9]{1,10})/step_", cgroup)
    match = re.fullmatch(r"SLURM_JOB_ID=([0-9]{1,10})", started)
    number = made[1] if made else match[1] if match else ""
    inside = CONTAINER.search(cgroup) is not None
    return msgspec.structs.replace(
        process,
        job=int(number) if number else None,
        known=bool(under) or process.pid not in lives,
        container=inside,
        orphan=inside and CONTAINER.search(oldest) is not None,
    )


QUERY = "nvidia-smi --query-compute-apps=gpu_bus_id,pid,used_gpu_memory --format=csv,noheader"
USED = "nvidia-smi --query-gpu=pci.bus_id,memory.used --format=csv,noheader,nounits"
# Jobs that have not ended, wherever their steps run: mpiexec over ssh has ranks on hosts of the job without a step.
QUEUE = "squeue -h -o %A -t RUNNING,SUSPENDED,CONFIGURING,COMPLETING -j"
PROCESSES = Probe(
    "gpu_processes",
    # Programs are started for what the shell cannot do alone: there may be thousands of processes.
    f"""{HERE}a=$({QUERY} 2>&1) || {{ echo "$a"; exit 1; }}
timeout 8 {USED} 2>/dev/null | sed 's/^/@memory|/'
s() {{
  t= q= c= w=
  while read -r k v; do
    case $k in Name:) c=$v;; State:) t=${{v%% *}};; PPid:) q=$v;; Uid:) w=${{v%%[!0-9]*}}; break;; esac
  done < "/proc/$1/status"
}} 2>/dev/null
g() {{
  x=; {{ while IFS= read -r k; do x="$x $k"; done < "/proc/$1/cgroup"; }} 2>/dev/null
  case $x in *'|'*) x=$(printf %s "$x" | tr '|' ' ');; esac
  [ ${{#x}} -le 4000 ] || x=$(printf %s "$x" | cut -c 1-4000)
}}
me=$(id -u)
# Whoever calls su by another name has a process of root's of that name: it counts who has started it.
mine() {{ s "${{1#/proc/}}" && [ "$w" = "$me" ]; }}
pid() {{ p=${{1#*,}}; p=${{p%%,*}}; p=${{p# }}; case $p in ''|*[!0-9]*) return 1;; esac; }}
rows() {{ while IFS= read -r l; do
  pid "$l" || continue
  s "$p"; n=; IFS= read -r n 2>/dev/null < "/proc/$p/comm"
  printf '%s|%s|%s\\n' "$t" "$l" "$n"
  [ "$t" != D ] || printf '@runs|%s|%s\\n' "$p" "$(grep ctxt_switches "/proc/$p/status" | tr -cs 0-9 ' ')"
done 2>/dev/null; }}
r=$(printf '%s\\n' "$a" | rows)
printf '%s\\n' "$r"
# What has just ended is gone a second later; what waits for a disk has run for a moment five seconds later.
if printf '%s\\n' "$r" | grep -q '^[ZXD]\\{{0,1\\}}|'; then
  sleep 1
  case "
$r" in *"
D|"*) sleep 4;; esac
  b=$(timeout -s KILL 8 {QUERY} 2>/dev/null) && {{ echo '@twice|'; printf '%s\\n' "$b" | rows | sed 's/^/@twice|/'; }}
fi
slurmd=
for d in /proc/[0-9]*; do
  [ -O "$d" ] && IFS= read -r c 2>/dev/null < "$d/comm" && [ "$c" = slurmd ] && mine "$d" && {{ slurmd=1; echo @slurmd
    break; }}
done 2>/dev/null
o=$(seen=' '; printf '%s\\n' "$a" | while IFS= read -r l; do
  pid "$l" || continue
  case $seen in *" $p "*) continue;; esac
  seen="$seen$p "
  s "$p"; e=$t; [ -n "$e" ] || continue
  o=$p u= n=0
  while [ "${{q:-0}}" -gt 1 ] && [ $n -lt 1000 ]; do
    o=$q; n=$((n + 1)); s "$o"
    case $c in slurmd|slurmstepd|nvidia-cuda-mps*) [ "$w" = "$me" ] && u=1;; esac
  done
  y=; [ "$q" = 1 ] || [ "$q" = 0 ] && {{ g "$o"; y=$x; }}
  j=; case $slurmd$e in 1D|'') ;; 1*)
    # This waits for a lock of the process's memory, which one that hangs may have.
    j=$(timeout -s KILL 2 grep -azoE '^SLURM_(JOB_ID|HET_SIZE)=[0-9]{{1,10}}$' "/proc/$p/environ");;
  esac
  g "$p"; printf '@of|%s|%s|%s|%s|%s\\n' "$p" "$j" "$u" "$x" "$y"
done 2>/dev/null)
printf '%s\\n' "$o"
if [ "$slurmd" ]; then
  steps=' '
  for d in /proc/[0-9]*; do
    [ -O "$d" ] && IFS= read -r c 2>/dev/null < "$d/comm" && [ "$c" = slurmstepd ] && mine "$d" || continue
    c=$(tr '\\0\\n' '  ' 2>/dev/null < "$d/cmdline" | cut -c 1-200)
    printf '@step|%s\\n' "$c"
    c=${{c#*'['}}; steps="$steps${{c%%[!0-9]*}} "
  done 2>/dev/null
  ask=$(printf '%s\\n' "$o" | while IFS='|' read -r k p j u x; do
    s "$p"; case $t in ''|Z|X) continue;; esac
    echo "@lives|$p"
    j=${{j#SLURM_JOB_ID=}}; case $j in ''|*[!0-9]*) continue;; esac
    case $u$steps in 1*|*" $j "*) ;; *) echo "$j";; esac
  done)
  printf '%s\\n' "$ask" | grep '^@'
  ask=$(printf '%s\\n' "$ask" | grep -v '^@' | sort -u | head -n 50 | tr '\\n' ,)
  PATH="$PATH:/opt/slurm/bin:/cm/shared/apps/slurm/current/bin"
  if [ "$ask" ]; then
    q=$(timeout -s KILL 8 {QUEUE} "${{ask%,}}" 2>&1); e=$?
    printf '%s\n' "$q" | sed 's/^/@queued|/'
    case $e$q in 0*|*'Invalid job id'*) ;; *) echo @unasked;; esac
  fi
fi
echo {SEEN}""",
    parse,
    f"{QUERY}; ps -o pid,stat,comm -p PID; fuser -v /dev/nvidia*; squeue -j JOB",
    blank="looked$",
)
