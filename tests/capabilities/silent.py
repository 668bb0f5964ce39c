"""Silence planted: whatever check passes on a host is asked again with each of its probes silent, and must not pass for
it.

conftest.py asks so of every check that passes in any test here, whatever the spec asks and whatever the host is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpuprov.capabilities.base import Check, Context, Outcome
from gpuprov.facts.probes.base import Facts, Output, Probe, ProbeFailed, T

SILENCES: Mapping[str, Output] = {
    "nothing": Output("", 0),
    "no program": Output("", 127, "sh: 1: not found"),
    "garbage": Output("%&/ garbage ~ 7 x=y | a:b\n\x00\xff junk junk\n", 0),
}


class Listening(Facts):
    """A host's facts, with some probes silent; they note whether one of those was read."""

    def __init__(self, facts: Facts, silent: dict[str, Output]) -> None:
        super().__init__(facts.outputs() | silent)
        self.read_at = facts.read_at
        self.facts, self.silent = facts, silent
        self.heard = False

    def get(self, probe: Probe[T]) -> T:
        if probe.name not in self.silent:
            return self.facts.get(probe)  # parsed already
        fact = super().get(probe)
        self.heard = True
        return fact


def green(check: Check, ctx: Context[Any], silent: dict[str, Output]) -> Outcome | None:
    """What the check answers, if it passes after it has read one of the silent probes."""
    heard = Listening(ctx.facts, silent)
    try:
        outcome = check.run(Context(ctx.host, ctx.fragment, heard))
    except ProbeFailed:
        return None
    return outcome if outcome.status == "pass" and heard.heard else None


def greens(check: Check, ctx: Context[Any]) -> Iterator[tuple[str, str, str]]:
    """(probe, silence, what is found) of each silence with which the check still passes; `*`: all of its probes are
    silent."""
    mine = sorted({probe.name for probe in check.probes} & ctx.facts.outputs().keys())
    for silence, said in SILENCES.items():
        for name in mine:
            if outcome := green(check, ctx, {name: said}):
                yield name, silence, outcome.found
        if outcome := green(check, ctx, dict.fromkeys(mine, said)):
            yield "*", silence, outcome.found


EMPTY = "what should not be there is not listed; that nothing is listed is the answer"
EXCUSED: Mapping[str, str] = {
    "container_toolkit.leftovers": EMPTY,
    "dcgm.leftovers": EMPTY,
    "host.packages": "dpkg --audit and rpm say nothing of a whole database, and end with a status where they cannot "
    "read it",
    "host.receipt": "a host without a receipt was never applied, and every role runs; so it is with a damaged one",
    "host.reboot_pending": EMPTY,
    "kubernetes.one_manager": EMPTY,
    "kubernetes.replicas": "the limit is the catalogue's",
    "mps.features": "before the driver is installed, the one of the spec is judged",
    **dict.fromkeys(("nvidia_absent.modules", "nvidia_absent.removable", "nvidia_absent.runfile"), EMPTY),
    "nvidia_driver.autobuild": EMPTY,
    "nvidia_driver.clients": EMPTY,
    "nvidia_driver.cuda": "which CUDA a driver runs is the catalogue's",
    "nvidia_driver.resolvable": "an exact version of the site's own repository is resolved when apply has enabled it",
    "container_toolkit.resolvable": "the site's own repository is resolved when apply has enabled it",
    "rdma.erdma_initramfs": EMPTY,
    "rdma.nccl_parts": "before NCCL's file is written, its parts may come with it",
    "rdma.nccl_stale": EMPTY,
}
"""Checks that pass where all of their probes print nothing, and why that is right."""
ANSWERS: Mapping[tuple[str, str], str] = {
    ("nvidia_smi", "no program"): "that it is not installed, which its parser tells",
    ("nvidia_smi", "garbage"): "its complaint, which its parser keeps",
    ("gpu_health", "no program"): "that there is no nvidia-smi; firmware of adapters does not need it",
    ("topology_nvlinks", "no program"): "that NVLinks are not known; what asks of the PCI bus does not need them",
    ("mig", "no program"): "that NVML cannot be read; what the unit is to do at boot does not need it",
    ("gpu_settings", "no program"): "that there is no nvidia-smi; what the unit is to do at boot does not need it",
    ("gpu_settings", "garbage"): "nvidia-smi's complaint; what the unit is to do at boot does not need it",
    ("package_audit", "garbage"): "any word is a complaint, which an apply that was cut off excuses",
    ("receipt", "garbage"): "a damaged receipt is put aside, and every role runs",
}
"""Silences that are answers, which a check that passes for other reasons may have read."""


def excused(check: str, probe: str, silence: str) -> bool:
    """Whether the check may pass. Of one probe that prints nothing: its parser or its fields know what that says."""
    if probe == "*":
        return check in EXCUSED and silence != "no program"
    return silence == "nothing" or (probe, silence) in ANSWERS


def asked_again(check: Check, ctx: Context[Any]) -> None:
    """Raise where a check that passed does so although its probes are silent."""
    wrong = [row for row in greens(check, ctx) if not excused(check.id, *row[:2])]
    assert not wrong, f"{check.id} passes although a probe is silent: {wrong}"
