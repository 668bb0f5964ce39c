"""Errors of NVLink 5 that a host of a rack reports: compared with those of the rack's other hosts."""

from collections.abc import Iterator, Sequence

import msgspec

from gpuprov.capabilities.base import Outcome
from gpuprov.capabilities.health.fragment import Ctx
from gpuprov.capabilities.health.past import find_endings
from gpuprov.catalog.verdicts import judge_line
from gpuprov.catalog.xids import NVLINK5, RECOVERY, blames_peer, get_recovery, recovery_word
from gpuprov.facts.probes.gpus.fabric import STATE, NvlinkError
from gpuprov.facts.probes.kernel.kernel_log import KernelLog, Line

IMEX = get_recovery("Recover IMEX Domain")


def find_rack(ctx: Ctx) -> str:
    """Return the NVLink domain and clique that the host's GPUs name; empty if none does. Boards outside of racks have a
    UUID of zeros, or one that begins with a small number."""
    named = (gpu for gpu in ctx.facts.known(STATE) or () if gpu.cluster.partition("-")[2].strip("0-"))
    return next((f"{gpu.cluster}.{gpu.clique}" for gpu in named), "")


def with_errors(ctx: Ctx, outcome: Outcome, log: KernelLog) -> Outcome:
    """Return the outcome with the rack's errors that still stand in the log."""
    rack = find_rack(ctx)
    return msgspec.structs.replace(outcome, nvlink_errors=tuple(_list_errors(log, rack))) if rack else outcome


def with_recovery(ctx: Ctx, outcome: Outcome, devices: Sequence[str]) -> Outcome:
    """Return the outcome with what nvidia-smi says of these GPUs: that the IMEX domain is to be recovered."""
    rack = find_rack(ctx) if devices else ""
    errors = tuple(NvlinkError(rack=rack, device=device, recover=True) for device in devices if rack)
    return msgspec.structs.replace(outcome, nvlink_errors=errors)


def _list_errors(log: KernelLog, rack: str) -> Iterator[NvlinkError]:
    endings = find_endings(log)
    for place, line in enumerate(log.lines):
        if endings.find(place) is None and (error := _find_error(line, rack)):
            yield error


def _find_error(line: Line, rack: str) -> NvlinkError | None:
    verdict = judge_line(line.text)
    if verdict is None or verdict.standing != "unfit":
        return None
    recover = verdict.number == RECOVERY and get_recovery(recovery_word(verdict.text)) is IMEX
    if verdict.number not in NVLINK5 and not recover:
        return None
    return NvlinkError(
        rack=rack,
        device=verdict.device,
        number=verdict.number,
        at=line.at,
        text=verdict.text,
        follows=blames_peer(verdict.number, verdict.text),
        recover=recover,
    )
