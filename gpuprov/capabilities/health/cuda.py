"""Proof that programs can compute: CUDA is run on each GPU and MIG device, as an ordinary user."""

from __future__ import annotations

from dataclasses import replace

from gpuprov.capabilities.base import Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.health.fragment import HERE, Ctx
from gpuprov.catalog.codes import list_errors
from gpuprov.catalog.symptoms import list_symptoms
from gpuprov.facts.probes.gpus.cuda_runs import CUDA_RUNS, Run
from gpuprov.spec.model import HostSpec

OUT_OF_MEMORY, UNAVAILABLE, NO_DEVICE = 2, 46, 100
"""Numbers by which a GPU that somebody else uses answers, and one that may not be opened:
https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html"""
OBSTACLES = {
    "no-user": ("the host has no user {}", "name a user of the host in health.cuda_user"),
    "no-device": ("nvidia-smi lists no device on which CUDA could run: {}", "see health.gpus, and the instances that mig asks for"),
    "no-uvm": ("there is no /dev/nvidia-uvm, without which no program of CUDA starts",
               "modprobe nvidia_uvm; nvidia-modprobe -u -c=0; persistence: {} makes it at boot"),
}  # fmt: skip
STEPS = {
    "become": ("gpuprov cannot become this user: {}", "set ansible_become: true"),
    "load": ("{}", "see nvidia_driver.user_space: libcuda.so.1 comes with the driver"),
    "open": ("may not open {}", "ls -l /dev/nvidia*; the driver's NVreg_DeviceFileMode and groups of the user decide"),
    "compare": ("memory that was copied there came back otherwise", "take it out of service; dcgmi diag -r 3"),
    "crash": ("the program crashed in libcuda", "journalctl -k -b; see nvidia_driver.user_space"),
    "hang": ("no answer within {} s", "journalctl -k -b says why; gpuprov explain reads its lines"),
}


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
    expected = f"CUDA runs on each device as {user}"
    if seen.obstacle:
        words, fix = OBSTACLES[seen.obstacle]
        return fail(expected, words.format(seen.text), fix)
    busy = {run.device: words for run in seen.runs if (words := explain_busy(run))}
    failed = [run for run in seen.runs if run.step and run.device not in busy]
    if failed:
        message = "; ".join(f"{name_device(run)}: {describe(run)}" for run in failed)
        return fail(expected, message, "; ".join(dict.fromkeys(map(find_fix, failed))))
    if busy:
        return skip("; ".join(f"{name_device(run)}: {busy[run.device]}" for run in seen.runs if run.device in busy))
    return ok(f"CUDA runs on {len(seen.runs)} device{'s' * (len(seen.runs) != 1)} as {user}", expected)


def name_device(run: Run) -> str:
    return f"{run.device} on {run.address}" if run.device.startswith("MIG-") else run.address


def explain_busy(run: Run) -> str:
    """Explain that others use the device so that nobody else can; empty if that is not why CUDA failed."""
    if run.code == OUT_OF_MEMORY:
        return "its memory is in use to the last"
    if run.code == UNAVAILABLE and run.mode.startswith("Exclusive"):
        return f"in use by somebody else (compute mode {run.mode})"
    return ""


def describe(run: Run) -> str:
    if run.step in STEPS:
        return STEPS[run.step][0].format(run.text)
    name = next((error.driver or error.runtime for error in list_errors() if error.code == run.code), "")
    return f"{run.step}: {run.code} {name}".rstrip()


def find_fix(run: Run) -> str:
    """Return the fix of the catalogue's symptom with this number of CUDA's."""
    if run.step in STEPS:
        return STEPS[run.step][1]
    if run.code == NO_DEVICE:
        return "ls -l /dev/nvidia*, and the cgroup of the user's session: nvidia-smi shows the device, and libcuda does not"
    fixes = (symptom.fix for symptom in list_symptoms() if run.code in symptom.codes)
    return next(fixes, f'gpuprov explain "CUDA error {run.code}"')


CHECKS = (cuda,)
