"""The compute mode of the daemons' GPUs: set at each start, and given back."""

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
    """GPUs whose compute mode is another, put right if `change`. In MIG mode it has to be DEFAULT. A refusal is a warning only."""
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
    """Keep in mind until the next boot, like the mode itself, that a daemon put this GPU into EXCLUSIVE_PROCESS."""
    note = f"{config['paths']['runtime']}/{gpu['uuid']}.exclusive"
    if on:
        write(note, "")
    elif os.path.exists(note):
        os.unlink(note)


def give_back(config: Config, nvml: Modes, gpus: Sequence[Gpu], desired: Sequence[Daemon], change: bool) -> list[str]:
    """GPUs that a daemon put into EXCLUSIVE_PROCESS and no wanted daemon has: DEFAULT again, if `change`; what was to be done."""
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
