"""The clocks of GPUs: equal on GPUs of one model, and high unless the driver gives a reason for lower ones."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from gpuprov.capabilities.base import Outcome, check, fail, not_asked
from gpuprov.capabilities.health.fragment import Ctx
from gpuprov.capabilities.health.reported import describe_gpus, judge_rest, select_gpus_with, shown
from gpuprov.facts.probes.gpus.gpu_health import GPU_HEALTH
from gpuprov.facts.probes.gpus.gpu_state import Clocks, GpuHealth

# Percent of its time: a GPU that is this busy is not about to idle.
BUSY = 90


def slow(clocks: Clocks) -> bool:
    """Return whether the GPU computes at less than half of its highest clock, as in a hardware slowdown, although the
    driver gives no reason for a lower clock: then the clocks are as high as they can be."""
    # https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html
    if clocks.held != () or (clocks.busy or 0) < BUSY or clocks.graphics is None or clocks.most_graphics is None:
        return False
    return 2 * clocks.graphics < clocks.most_graphics


def pair(graphics: int | None, memory: int | None) -> str:
    return "" if graphics is None and memory is None else f"{graphics or '?'} MHz, memory {memory or '?'} MHz"


def unlike(gpus: tuple[GpuHealth, ...], judge_set: bool) -> list[tuple[GpuHealth, str]]:
    """Return the GPUs whose clocks differ from most others of their model. If a GPU has a process, its job may have set
    application clocks of its own (srun --gpu-freq); if they remain after the job, they are reported then."""
    outliers = []
    free = tuple(gpu for gpu in gpus if gpu.processes is not True)
    kinds: list[tuple[str, tuple[GpuHealth, ...], Callable[[Clocks], str]]] = [
        ("at most", gpus, lambda clock: pair(clock.most_graphics, clock.most_memory)),
        ("application clocks", free if judge_set else (), lambda clock: pair(clock.set_graphics, clock.set_memory)),
    ]
    for what, judged, of in kinds:
        for kind in dict.fromkeys(gpu.kind for gpu in judged):
            like = [gpu for gpu in judged if gpu.kind == kind]
            usual = Counter(of(gpu.clocks) for gpu in like).most_common(1)[0][0]
            outliers += [
                (gpu, f"has {what} {of(gpu.clocks) or 'none'}, its like {usual or 'none'}")
                for gpu in like
                if of(gpu.clocks) != usual
            ]
    return outliers


def _is_declared(ctx: Ctx, setting: str) -> bool:
    """Return whether gpu_settings sets these clocks on any GPU, and so judges them itself."""
    block: Any = ctx.host.capabilities.get("gpu_settings")
    blocks = () if block is None else (block, *block.per_gpu)
    return any(getattr(block, setting) not in ("keep", type(block.locked_clocks)()) for block in blocks)


@check("health.clocks", GPU_HEALTH, fields=("clocks",), evidence="nvidia-smi -q -d CLOCK,PERFORMANCE,UTILIZATION")
def clocks(ctx: Ctx) -> Outcome:
    """GPUs of one model have the same highest clocks, and the same application clocks unless gpu_settings sets them;
    and none that computes runs at less than half its highest clock without a reason from the driver, as after someone
    locked its clocks."""
    if ctx.fragment.clocks == "any":
        return not_asked("clocks: any")
    gpus = shown(ctx)
    relevant, nothing = select_gpus_with(
        gpus, lambda gpu: gpu.clocks.most_graphics is not None, "word of its highest clock"
    )
    if nothing:
        return nothing
    bad = unlike(relevant, judge_set=not _is_declared(ctx, "application_clocks"))
    locked = [] if _is_declared(ctx, "locked_clocks") else [gpu for gpu in relevant if slow(gpu.clocks)]
    bad += [
        (gpu, f"computes at {gpu.clocks.graphics} of {gpu.clocks.most_graphics} MHz, and nothing is said to lower it")
        for gpu in locked
    ]
    expected = "one model, one set of clocks, and none far below the highest without a reason"
    if bad:
        fix = (
            "nvidia-smi -rgc -i ADDRESS takes a lock of clocks away, nvidia-smi -rac application clocks; "
            "gpu_settings in the spec sets them; if it stays slow, drain the host and run NVIDIA's field diagnostics"
        )
        return fail(expected, describe_gpus(bad), fix, action="drain" if locked else "")
    most = max(gpu.clocks.most_graphics or 0 for gpu in relevant)
    return judge_rest(relevant, gpus, "one", f"; at most {most} MHz", expected)


CHECKS = (clocks,)
