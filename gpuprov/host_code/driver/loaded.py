"""The driver in the running kernel: unloaded for a change, reloaded after it, or restored if the change failed."""

from __future__ import annotations

import os
from typing import Sequence

from .. import reasons
from ..failed import Failed
from ..files import read, remove, write
from ..packages.commands import run

MODULES = "/sys/module"
# Modules that were unloaded, in that order, until they are loaded again; a reboot deletes the file.
NOTE = "/run/gpuprov/unloaded"
# The modules' own names: Debian's files are called nvidia-current. nvidia_vgpu_vfio is the vGPU manager's:
# https://github.com/canonical/ubuntu-server-documentation/blob/main/how-to/graphics/gpu-virtualization-with-qemu-kvm.md
STACK = (
    *("gdrdrv", "nv_peer_mem", "nvidia_peermem", "nvidia_fs", "nvidia_vgpu_vfio"),
    *("nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia"),
)
ABOVE = STACK[:3]
# Services that load modules which depend on the driver.
SERVICES = ("gdrdrv.service", "gdrcopy.service", "nv_peer_mem.service", "gpuprov-gpudirect.service")


def list_loaded() -> list[str]:
    """Return the loaded modules of the driver and those that depend on it, topmost first."""
    return [name for name in STACK if os.path.isdir(f"{MODULES}/{name}")]


def take_out() -> list[str]:
    """Unload modules that are not in use; return them. The others require a reboot."""
    gone = []
    for name in list_loaded():
        write_noted([*read_noted(), name])
        if run(["rmmod", name]).status == 0:
            gone.append(name)
        else:
            write_noted([entry for entry in read_noted() if entry != name])
    return gone


def put_back() -> list[str]:
    """Load the unloaded modules again, as far as they load. Raises Failed if any does not."""
    names = read_noted()[::-1]
    remove(NOTE)
    if names and (ran := run(["modprobe", "-a", *names])).status:
        lines = (ran.err or ran.out).strip().splitlines()
        raise Failed(f"modprobe -a {' '.join(names)}: {lines[-1] if lines else f'status {ran.status}'}")
    return names


def is_waiting() -> bool:
    """Return whether the driver is not loaded although no reboot is pending."""
    return not os.path.isdir(f"{MODULES}/nvidia") and not reasons.read_reasons()


def load() -> None:
    """Load the driver. Raises Failed."""
    ran = run(["modprobe", "nvidia"])
    if ran.status:
        raise Failed(
            f"the NVIDIA module does not load: {ran.err.strip()}. Fix: dmesg | grep -E 'NVRM|nvidia' on the host "
            "says why; gpuprov explain finds most of its messages"
        )


def is_lasting() -> bool:
    """Return whether the driver is loaded and not about to be replaced by a reboot."""
    return os.path.isdir(f"{MODULES}/nvidia") and not reasons.read_reasons()


def list_missing() -> list[str]:
    """List the modules that were unloaded with the old driver and are not loaded again yet, except the driver itself,
    lowest first."""
    return [name for name in read_noted()[::-1] if name != "nvidia" and not os.path.isdir(f"{MODULES}/{name}")]


def restore() -> list[str]:
    """Load it: gdrcopy and peer memory by the services that had loaded them, and modules that no service loads (from
    modules-load.d, or by hand) directly. Return the present modules that do not load, and why."""
    if set(list_missing()) & set(ABOVE):
        run(["systemctl", "try-restart", *SERVICES])
    complaints = []
    for name in list_missing():
        ran = run(["modprobe", name])
        if ran.status and "not found in directory" not in ran.err:  # what is not there any more left with its package
            complaints.append(f"{name}: {' '.join(ran.err.split()) or f'modprobe ends with status {ran.status}'}")
    return complaints


def forget_unloaded() -> None:
    """Forget the unloaded modules, so that they are not restored any more."""
    remove(NOTE)


def read_noted() -> list[str]:
    return [name for name in read(NOTE).split() if name in STACK]


def write_noted(names: Sequence[str]) -> None:
    write(NOTE, "".join(f"{name}\n" for name in dict.fromkeys(names))) if names else remove(NOTE)
