"""Processes that are left on GPUs, and GPU memory that was never released."""

from gpuprov.capabilities.base import Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.health.fragment import Ctx
from gpuprov.capabilities.health.reported import concern
from gpuprov.catalog import xids as catalogue
from gpuprov.catalog.xids import Action
from gpuprov.facts.probes.base import ProbeFailed
from gpuprov.facts.probes.gpus.gpu_health import GPU_HEALTH
from gpuprov.facts.probes.gpus.gpu_processes import PROCESSES, Held, Processes
from gpuprov.facts.probes.gpus.gpu_settings import normalize_address
from gpuprov.facts.probes.gpus.gpu_state import State
from gpuprov.facts.probes.host import system

SHOWN = 20
WORDS = {"": "the host has no such process", "Z": "a zombie", "X": "dead", "D": "hangs in the kernel"}
ENDED = (
    "restart what started it (ps -o ppid= -p PID); else drain the host, and restart it: a GPU cannot be reset while "
    "something holds it"
)
LEFT = (
    "look at it (ps -fp PID; squeue -j JOB), and end it (kill PID, then kill -KILL PID): nothing that schedules "
    "jobs here knows of it"
)
KEPT = (
    "fuser -v /dev/nvidia* names who has the GPU open without computing, such as a worker that a job left: end it; "
    "if none does, drain the host, then nvidia-smi --gpu-reset -i ADDRESS; GPUs joined by NVLink together"
)


def _describe_lost_owner(held: Held, seen: Processes) -> str:
    """Return in words which job or container monitor of a process is gone; empty if it still exists, or is unknown."""
    if held.orphan:
        return "in a container whose monitor (containerd-shim, conmon) is gone"
    if seen.slurmd and held.job is not None and not held.known and held.job not in seen.jobs:
        return f"started in Slurm's job {held.job}, of which no step runs here"
    return ""


@check(
    "health.processes",
    PROCESSES,
    GPU_HEALTH,
    system.CONTAINER,
    fields=("left_processes", "stray_memory"),
    evidence=f"{PROCESSES.evidence}; nvidia-smi -q -d MEMORY,PIDS",
)
def processes(ctx: Ctx) -> Outcome:
    """No process that has ended, that hangs in the kernel, or whose job or container is gone still holds a GPU, and no
    GPU without a process has memory in use, which would be lost to the next job.

    Seen in the field: https://github.com/qizhou000/VisEdit/issues/5 (nvidia-smi lists a process that the host does not
    have), https://github.com/apache/mxnet/issues/4242 (a zombie), https://github.com/microsoft/pai/issues/3375 (D for
    good), https://github.com/sgl-project/sglang/issues/23627 (left by a Slurm job that ended),
    https://github.com/containerd/containerd/issues/8285 (a container without its shim),
    https://github.com/pytorch/pytorch/issues/4031 (memory in use, and no process).
    """
    if container := ctx.facts.get(system.CONTAINER):
        return not_asked(f"{container} container: the processes of the machine cannot be seen")
    seen, limit = ctx.facts.get(PROCESSES), ctx.fragment.stray_memory
    problems: list[str] = []
    fixes: list[str] = []
    actions: list[Action] = []

    def bad(words: str, fix: str, action: Action) -> None:
        problems.append(words)
        fixes.extend([fix] * (fix not in fixes))
        actions.append(action)

    unproven = list[str]()
    for holder in seen.held:
        name = f"{holder.name or 'process'} (pid {holder.pid}) on {holder.gpu}, {holder.memory}"
        if holder.state in WORDS:
            bad(f"{name}: {WORDS[holder.state]}", ENDED, "reboot")
        elif ctx.fragment.left_processes == "refuse" and (left := _describe_lost_owner(holder, seen)):
            if seen.unasked and not holder.orphan:
                unproven.append(f"{name}: {left}, and squeue does not say whether the job runs")
            else:
                bad(f"{name}: {left}", LEFT, "none")
    state: State = ctx.facts.get(GPU_HEALTH)
    if limit and state.complaint:
        raise ProbeFailed(f"nvidia-smi shows no GPU: {state.complaint}", "see health.gpus")
    lost, once = _find_lost_memory(state, seen, limit)
    for words in lost.values():
        bad(words, KEPT, "reset")
    if problems:
        expected = "no process that is left, and no memory without a process"
        more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        worst = catalogue.find_worst(tuple(actions))
        return concern(fail(expected, "; ".join(problems[:SHOWN]) + more, "; ".join(fixes), action=worst), lost)
    if unproven:
        return skip("; ".join(unproven[:SHOWN]), "make squeue -j JOB work on this host")
    if once:
        return skip(f"memory is in use without a process; whether it still is could not be read: {' '.join(once)}")
    return ok(f"processes on GPUs: {len(seen.held)}, all there" if seen.held else "no process on a GPU")


def _find_lost_memory(state: State, seen: Processes, limit: int) -> tuple[dict[str, str], list[str]]:
    """Return the memory in use on GPUs without a process, in words by address; and the addresses of GPUs for which it
    could be read only once."""
    holding = {normalize_address(holder.gpu) for holder in seen.held}
    again = {normalize_address(address): mebibytes for address, mebibytes in seen.used.items()}
    lost, once = dict[str, str](), list[str]()
    for gpu in state.gpus:
        if gpu.processes is not False or gpu.coherent or gpu.address in holding or not (gpu.used or 0) >= limit > 0:
            continue
        if gpu.address not in again:
            once.append(gpu.address)
        elif again[gpu.address] >= limit:
            least = min(gpu.used or 0, again[gpu.address])
            lost[gpu.address] = f"{least} MiB of {gpu.address} are in use, and no process is on it"
    return lost, once


CHECKS = (processes,)
