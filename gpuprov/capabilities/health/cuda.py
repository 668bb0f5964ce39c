"""Proof that programs can compute: CUDA is run on each GPU and MIG device, as an ordinary user; and nothing that is set
for everybody hides GPUs."""

from __future__ import annotations

from dataclasses import replace

from gpuprov.capabilities.answers import environment_outcome
from gpuprov.capabilities.base import Outcome, check, fail, not_asked, skip
from gpuprov.capabilities.computing import OBSTACLES, judge_runs
from gpuprov.capabilities.health.fragment import HERE, Ctx
from gpuprov.facts.probes.gpus.cuda_runs import CUDA_RUNS
from gpuprov.hardware import environment
from gpuprov.spec.model import HostSpec


def ask_user(host: HostSpec) -> dict[str, str]:
    block = host.capabilities.get(HERE)
    return {"cuda_user": getattr(block, "cuda_user", None) or ""}


RUNS = replace(CUDA_RUNS, asks=ask_user)


@check("health.cuda", RUNS, fields=("cuda_user",))
def cuda(ctx: Ctx) -> Outcome:
    """A program of an ordinary user can compute on every GPU and MIG device: libcuda starts, memory is had, and what was
    copied there comes back. A device that somebody holds exclusively, or that has no memory left, is not proven."""
    user = ctx.fragment.cuda_user
    if not user:
        return not_asked("no user is named in health.cuda_user")
    seen = ctx.facts.get(RUNS)
    if seen.missing:
        return skip("the host has no Python that could call libcuda", "install python3")
    if seen.obstacle == "off":
        return skip("CUDA was not run when this record was made", "gpuprov verify or health on the host itself")
    if seen.obstacle:
        words, fix = OBSTACLES[seen.obstacle]
        return fail(f"CUDA runs on each device as {user}", words.format(seen.text), fix)
    return judge_runs(seen.runs, f"as {user}")


@check("health.environment", *environment.PROBES, evidence=environment.ENVIRONMENT.evidence)
def variables(ctx: Ctx) -> Outcome:
    """No variable that is set for everybody hides GPUs from programs, or gives them another libcuda than the driver's."""
    return environment_outcome(ctx)


CHECKS = (cuda, variables)
