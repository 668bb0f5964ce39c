"""The compute mode of the daemons' GPUs: set at each start, and restored."""

from __future__ import annotations

import glob
import os
import sys
from typing import Protocol, Sequence

from .daemon import write
from .devices import DEFAULT, EXCLUSIVE_PROCESS, Config, Daemon, Gpu, Problem


class Modes(Protocol):
    """The NVML functions that are used here."""

    def compute_mode(self, gpu: Gpu) -> int: ...

    def set_compute_mode(self, gpu: Gpu, mode: int) -> None: ...


def compute_modes(daemon: Daemon, config: Config, nvml: Modes, change: bool = True) -> list[str]:
    """List GPUs with another compute mode, and fix them if `change`. In MIG mode it has to be DEFAULT. A refusal is
    only a warning."""
    mode = EXCLUSIVE_PROCESS if config["exclusive"] and not daemon["mig"] else DEFAULT
    changes = []
    for gpu in daemon["gpus"]:
        try:
            if change:
                note_exclusive(config, gpu, mode == EXCLUSIVE_PROCESS)
            if nvml.compute_mode(gpu) != mode:
                if change:
                    nvml.set_compute_mode(gpu, mode)
                changes.append(f"GPU {gpu['index']}: compute mode {('EXCLUSIVE_PROCESS' if mode else 'DEFAULT')}")
        except Problem as problem:
            sys.stderr.write(f"GPU {gpu['index']}: compute mode: {problem}\n")
    return changes


def note_exclusive(config: Config, gpu: Gpu, on: bool) -> None:
    """Record until the next boot, which also resets the mode, that a daemon set this GPU to EXCLUSIVE_PROCESS."""
    note = f"{config['paths']['runtime']}/{gpu['uuid']}.exclusive"
    if on:
        write(note, "")
    elif os.path.exists(note):
        os.unlink(note)


def give_back(config: Config, nvml: Modes, gpus: Sequence[Gpu], desired: Sequence[Daemon], change: bool) -> list[str]:
    """Reset GPUs that a daemon set to EXCLUSIVE_PROCESS and that no wanted daemon has to DEFAULT, if `change`; return
    the changes."""
    kept, changes = [gpu["uuid"] for daemon in desired for gpu in daemon["gpus"]], []
    for note in sorted(glob.glob(f"{config['paths']['runtime']}/*.exclusive")):
        for gpu in gpus:
            if gpu["uuid"] != os.path.basename(note)[: -len(".exclusive")] or gpu["uuid"] in kept:
                continue
            if nvml.compute_mode(gpu) == EXCLUSIVE_PROCESS:
                changes.append(f"GPU {gpu['index']}: compute mode DEFAULT")
                if change:
                    nvml.set_compute_mode(gpu, DEFAULT)
            if change:
                os.unlink(note)
    return changes
