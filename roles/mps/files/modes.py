# The compute mode of the daemons' GPUs: set at each start, and given back. Python 3.6 and newer, standard library only.
import glob
import os
import sys

from daemon import write
from devices import DEFAULT, EXCLUSIVE_PROCESS, Problem


def compute_modes(daemon, config, nvml, change=True):
    """GPUs whose compute mode is another, put right if `change`. In MIG mode it has to be DEFAULT. A refusal is a warning only."""
    wanted, told = EXCLUSIVE_PROCESS if config["exclusive"] and not daemon["mig"] else DEFAULT, []
    for gpu in daemon["gpus"]:
        try:
            if change:
                note_exclusive(config, gpu, wanted == EXCLUSIVE_PROCESS)
            if nvml.compute_mode(gpu) != wanted:
                if change:
                    nvml.set_compute_mode(gpu, wanted)
                told.append("GPU %d: compute mode %s" % (gpu["index"], "EXCLUSIVE_PROCESS" if wanted else "DEFAULT"))
        except Problem as problem:
            sys.stderr.write("GPU %d: compute mode: %s\n" % (gpu["index"], problem))
    return told


def note_exclusive(config, gpu, on):
    """Keep in mind until the next boot, like the mode itself, that a daemon put this GPU into EXCLUSIVE_PROCESS."""
    note = "%s/%s.exclusive" % (config["paths"]["runtime"], gpu["uuid"])
    if on:
        write(note, "")
    elif os.path.exists(note):
        os.unlink(note)


def give_back(config, nvml, gpus, wanted, change):
    """GPUs that a daemon put into EXCLUSIVE_PROCESS and no wanted daemon has: DEFAULT again, if `change`; what was to be done."""
    kept, told = [gpu["uuid"] for one in wanted for gpu in one["gpus"]], []
    for note in sorted(glob.glob("%s/*.exclusive" % config["paths"]["runtime"])):
        for gpu in gpus:
            if gpu["uuid"] != os.path.basename(note)[: -len(".exclusive")] or gpu["uuid"] in kept:
                continue
            if nvml.compute_mode(gpu) == EXCLUSIVE_PROCESS:
                told.append("GPU %d: compute mode DEFAULT" % gpu["index"])
                if change:
                    nvml.set_compute_mode(gpu, DEFAULT)
            if change:
                os.unlink(note)
    return told
