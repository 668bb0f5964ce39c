"""Processes that are left on GPUs."""

from __future__ import annotations

from gpuprov.capabilities.base import Outcome, check, fail, not_asked, ok
from gpuprov.capabilities.health.fragment import Ctx
from gpuprov.probe.gpus.gpu_processes import PROCESSES
from gpuprov.probe.host import system


@check("health.processes", PROCESSES, system.CONTAINER, evidence=PROCESSES.evidence)
def processes(ctx: Ctx) -> Outcome:
    """No process that has ended, or that hangs in the kernel, still holds a GPU: its memory is lost to the next job.

    Seen in the field: https://github.com/qizhou000/VisEdit/issues/5 (nvidia-smi names a process that the host has not),
    https://github.com/apache/mxnet/issues/4242 (a zombie), https://github.com/microsoft/pai/issues/3375 (D for good).
    """
    if container := ctx.facts.get(system.CONTAINER):
        return not_asked(f"{container} container: the processes of the machine cannot be seen")
    expected = "no ended or hanging process holds a GPU"
    words = {"": "the host has no such process", "Z": "a zombie", "X": "dead", "D": "hangs in the kernel"}
    found = ctx.facts.get(PROCESSES)
    bad = [one for one in found if one.state in words]
    if bad:
        told = "; ".join(
            f"{one.name or 'process'} (pid {one.pid}) on {one.gpu}, {one.memory}: {words[one.state]}" for one in bad
        )
        hint = (
            "restart what started it (ps -o ppid= -p PID); else drain the host, and restart it: a GPU cannot be reset "
            "while something holds it"
        )
        return fail(expected, told, hint, action="reboot")
    return ok(f"processes on GPUs: {len(found)}, all there" if found else "no process on a GPU", expected)


CHECKS = (processes,)
