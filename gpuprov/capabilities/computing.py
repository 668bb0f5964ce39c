"""The result of running CUDA on a device, in words: on the host as an ordinary user, and in containers."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from gpuprov.capabilities.base import Outcome, fail, ok, skip
from gpuprov.catalog.codes import list_errors
from gpuprov.catalog.symptoms import list_symptoms
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.gpus.cuda_runs import Run

# Numbers by which a GPU that somebody else uses answers, and one that may not be opened:
# https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html
OUT_OF_MEMORY, UNAVAILABLE, NO_DEVICE = 2, 46, 100
OBSTACLES = {
    "no-user": ("the host has no user {}", "name a user of the host in health.cuda_user"),
    "no-device": (
        "nvidia-smi lists no device on which CUDA could run: {}",
        "see health.gpus, and the instances that mig asks for",
    ),
    "no-uvm": (
        "there is no /dev/nvidia-uvm, without which no program of CUDA starts",
        "modprobe nvidia_uvm; nvidia-modprobe -u -c=0; persistence: {} makes it at boot",
    ),
}
STEPS = {
    "become": ("gpuprov cannot become this user: {}", "set ansible_become: true"),
    "load": ("{}", "see nvidia_driver.user_space: libcuda.so.1 comes with the driver"),
    "compare": ("memory that was copied there came back otherwise", "take it out of service; dcgmi diag -r 3"),
    "crash": ("the program crashed in libcuda", "journalctl -k -b; see nvidia_driver.user_space"),
    "hang": ("no answer within {} s", "journalctl -k -b says why; gpuprov explain reads its lines"),
}
# Causes by the number of the error; systemd and engines deny device files by EPERM:
# https://docs.kernel.org/admin-guide/cgroup-v1/devices.html
OPENS = {
    errno.EPERM: (
        "a cgroup denies {}",
        "systemctl show -p DevicePolicy -p DeviceAllow UNIT; see container_toolkit.daemon_reload",
    ),
    errno.ENOENT: ("there is no {}", "nvidia-modprobe -u -c=0; in containers see container_toolkit.cdi"),
}
MODES = "ls -l /dev/nvidia*; the driver's NVreg_DeviceFileMode and groups of the user decide"
IN_CONTAINER = {
    ("load", 0): "nvidia-ctk cdi generate; see container_toolkit.cdi: the toolkit brings libcuda.so.1 into containers",
    ("load", 1): "name an image with glibc: this one has no /etc/ld.so.cache, in which the toolkit enters libcuda",
}


def judge_runs(runs: Sequence[Run], where: str, within: bool = False) -> Outcome:
    """Judge the ends of CUDA on all devices. `where`: as whom, or in what; `within`: in a container."""
    expected = f"CUDA runs on each device {where}"
    busy = {run.device: words for run in runs if (words := explain_busy(run))}
    if failed := [run for run in runs if run.step and run.device not in busy]:
        fixes = dict.fromkeys(find_fix(run, within) for run in failed)
        return fail(expected, "; ".join(f"{name_device(run)}: {describe(run)}" for run in failed), "; ".join(fixes))
    if busy:
        return skip("; ".join(f"{name_device(run)}: {busy[run.device]}" for run in runs if run.device in busy))
    return ok(f"CUDA runs on {counted(len(runs), 'device')} {where}", expected)


def name_device(run: Run) -> str:
    return f"{run.device} on {run.address}" if run.device.startswith("MIG-") else run.address


def explain_busy(run: Run) -> str:
    """Explain that others use the device so that nobody else can; empty if that is not why CUDA failed."""
    if run.code == OUT_OF_MEMORY and run.step.startswith("cu"):
        return "its memory is in use to the last"
    if run.code == UNAVAILABLE and run.mode.startswith("Exclusive"):
        return f"in use by somebody else (compute mode {run.mode})"
    return ""


def describe(run: Run) -> str:
    if run.step == "open":
        return OPENS.get(run.code, ("may not open {}", ""))[0].format(run.text)
    if run.step in STEPS:
        return STEPS[run.step][0].format(run.text)
    name = next((error.driver or error.runtime for error in list_errors() if error.code == run.code), "")
    forbidden = ": compute mode Prohibited, in which no program computes" * (run.mode == "Prohibited")
    return f"{run.step}: {run.code} {name}".rstrip() + forbidden


def find_fix(run: Run, within: bool = False) -> str:
    """Return the fix of the catalogue's symptom with this number of CUDA's."""
    if within and (run.step, run.code) in IN_CONTAINER:
        return IN_CONTAINER[run.step, run.code]
    if run.step == "open":
        return OPENS.get(run.code, ("", MODES))[1]
    if run.step in STEPS:
        return STEPS[run.step][1]
    if run.mode == "Prohibited":
        return "gpu_settings.compute_mode, or nvidia-smi -c DEFAULT"
    if run.code == NO_DEVICE:
        return (
            "ls -l /dev/nvidia*, and the cgroup of the user's session: nvidia-smi shows the device, and libcuda "
            "does not"
        )
    fixes = (symptom.fix for symptom in list_symptoms() if run.code in symptom.codes)
    return next(fixes, f'gpuprov explain "CUDA error {run.code}"')
