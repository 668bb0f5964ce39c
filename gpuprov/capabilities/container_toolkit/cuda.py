"""Proof that containers can compute: CUDA is run on each GPU and MIG device in a container of each engine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpuprov.capabilities.answers import APPLY
from gpuprov.capabilities.base import Change, Context, Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.computing import OBSTACLES, judge_runs
from gpuprov.capabilities.container_toolkit.fragment import ContainerToolkit, ask_image
from gpuprov.facts.probes.gpus.cuda_runs import CUDA_IN_CONTAINERS, InEngine

Ctx = Context[ContainerToolkit]
ABSENT = re.compile(r"no such (image|object)|image not known|not found: image|does not exist in local storage", re.I)
STALE = re.compile(r"/\S+?\.so\.([0-9]+\.[0-9.]*[0-9])\b.*(?:no such file|not exist)", re.I)
# Words of docker, podman, containerd and NVIDIA's runtime, what they come to, and the fix.
ANSWERS = (
    (
        r"(unknown|invalid)[\w ]*runtime|runtime \S*nvidia\S* (is )?not|"
        r"nvidia-container-runtime\S*: (no such|executable)",
        "NVIDIA's runtime is not registered",
        "see container_toolkit.registered",
    ),
    (
        r"unresolvable CDI|nvidia\.com/gpu=all.*(no such|not found|invalid)|(failed|unable) to inject CDI",
        "no CDI specification names the GPUs",
        "see container_toolkit.cdi",
    ),
)


RUNS = replace(CUDA_IN_CONTAINERS, asks=ask_image)


@check("container_toolkit.cuda", RUNS, fields=("cuda_image", "cuda_pull"))
def cuda(ctx: Ctx) -> Outcome:
    """A container of each engine (docker, podman, containerd) can compute on every GPU and MIG device: it starts,
    libcuda is in it, memory is had, and what was copied there comes back. A device that somebody holds exclusively is
    not proven, nor is a host that others have drained."""
    image = ctx.fragment.cuda_image
    if not image:
        return not_asked("no image is named in container_toolkit.cuda_image")
    seen = ctx.facts.get(RUNS)
    if seen.missing:
        return skip("the host has no Python that a container could run", "install python3")
    if seen.obstacle == "off":
        return skip("no container was started when this record was made", "gpuprov verify on the host itself")
    if seen.obstacle == "drained":
        return skip(f"drained by {seen.text}: no container is started on it", "verify again when it is back in service")
    if seen.obstacle == "turn":
        return skip("another container of this check is running", "verify again")
    if seen.obstacle:
        words, fix = OBSTACLES[seen.obstacle]
        return fail(f"CUDA runs in containers of {image}", words.format(seen.text), fix)
    results = {name: judge_engine(ctx.fragment, name, engine) for name, engine in seen.engines.items()}
    return merge(results, f"CUDA runs on each device in containers of {image}")


def judge_engine(block: ContainerToolkit, name: str, engine: InEngine) -> Outcome:
    if not engine.failed:
        return judge_runs(engine.runs, f"in {name}", within=True)
    return explain_answer(block, name, engine)


def explain_answer(block: ContainerToolkit, name: str, engine: InEngine) -> Outcome:
    """Explain why there is no container: the image is not there, or the engine's words."""
    image, printed = block.cuda_image or "", engine.printed
    if engine.failed == "image" and ABSENT.search(printed):
        program = "ctr images" if name == "containerd" else name
        change = Change(kind="setting", name=f"{name}: image {image}", before="not there", after="pulled")
        pulled = f"{APPLY}, which pulls it" if block.cuda_pull else f"{program} pull {image}, or cuda_pull: true"
        return fail("", f"{name} has no image {image}", pulled, changes=[change] if block.cuda_pull else [])
    if engine.failed == "image":
        return fail("", f"{name} does not answer: {printed or 'it says nothing'}", "see container_toolkit.registered")
    if match := STALE.search(printed):
        message = f"{name}: the CDI specification has files of driver {match[1]}, which are gone: it is stale"
        return fail("", message, "systemctl restart nvidia-cdi-refresh; see container_toolkit.cdi")
    for pattern, words, fix in ANSWERS:
        if re.search(pattern, printed, re.I):
            return fail("", f"{name}: {words} ({printed[-200:]})", fix)
    return fail(
        "", f"{name} starts no container: {printed or 'it says nothing'}", "gpuprov explain reads such messages"
    )


def merge(results: dict[str, Outcome], expected: str) -> Outcome:
    """Return one outcome of those of all engines: what fails goes before what is not proven."""
    for make, status in ((fail, "fail"), (skip, "skip")):
        if those := {name: one for name, one in results.items() if one.status == status}:
            message = "; ".join(dict.fromkeys(say(those)))
            fix = "; ".join(dict.fromkeys(one.fix for one in those.values() if one.fix))
            if make is skip:
                return skip(message, fix)
            return fail(expected, message, fix, changes=[change for one in those.values() for change in one.changes])
    return ok(f"CUDA runs on each device in {', '.join(results)}", expected)


def say(results: dict[str, Outcome]) -> Iterator[str]:
    for name, one in results.items():
        yield one.found if one.found.startswith(name) else f"{name}: {one.found}"


CHECKS = (cuda,)
