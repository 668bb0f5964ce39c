"""Execution of the plan for a GPU: destroy, switch the mode, create; then the device nodes."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from typing import Any, Callable, Sequence

from . import fit as mig_fit
from .nvml import Nvml
from .plan import Change
from .state import Card, User
from .users import is_right_node, list_capability_files, read_node

RESET_SECONDS = 120
MODPROBE = "nvidia-modprobe"
Users = Callable[[Card], Sequence[User]]


class Failed(Exception):
    """The failed operation, in one line with the fix."""


class Waits(Failed):
    """A mode that is pending, and takes effect at a reboot."""


def clear(nvml: Nvml, change: Change) -> None:
    """Destroy the instances that must go. Raises Failed for those that the driver does not release."""
    handle = nvml.handle(change.card)
    gone = {(instance.id, compute.id) for instance in change.destroy for compute in instance.compute}
    known = {instance.id: instance for instance in change.card.instances}
    for gi in sorted({gi for gi, _ in [*change.cut, *gone]} | {instance.id for instance in change.destroy}):
        instance = nvml.lib.nvmlDeviceGetGpuInstanceById(handle, gi)
        try:
            for compute, made in list(nvml.computes(instance)):
                if (gi, compute.id) in gone or (gi, compute.id) in change.cut:
                    nvml.lib.nvmlComputeInstanceDestroy(made)
            if known[gi] in change.destroy:
                nvml.lib.nvmlGpuInstanceDestroy(instance)
        except nvml.error as error:
            raise Failed(f"{change.card}: the driver does not destroy {known[gi]}: {error}") from error


def switch_mode(nvml: Nvml, card: Card, enabled: bool, users: Users, may_reset: bool) -> None:
    """Set the MIG mode and have it take effect. Raises Failed if that is impossible, and Waits if it needs a reboot."""
    status = nvml.lib.nvmlDeviceSetMigMode(nvml.handle(card), int(enabled))
    word = "enabled" if enabled else "disabled"
    if nvml.card(card.gpu.address).current == int(enabled):
        return
    # What NVML says of a GPU that a virtual machine may not reset:
    # https://docs.nvidia.com/datacenter/tesla/mig-user-guide/getting-started-with-mig.html
    if status == nvml.lib.NVML_ERROR_NOT_SUPPORTED:
        raise Waits(
            f"{card}: MIG mode {word} is pending, and this virtual machine may not reset its GPU; reboot the "
            "virtual machine, then apply again"
        )
    if status != nvml.lib.NVML_ERROR_IN_USE and may_reset:
        reset(nvml, card)
        if nvml.card(card.gpu.address).current == int(enabled):
            return
    names = ", ".join(str(user) for user in users(card)) or "a client that has no process here"
    nvml.lib.nvmlDeviceSetMigMode(nvml.handle(card), card.current)
    raise Failed(
        f"{card}: MIG mode cannot be {word}: {nvml.describe_code(status)}; it is used by {names}; stop that, then "
        "apply again"
    )


def reset(nvml: Nvml, card: Card) -> None:
    """Reset one GPU by nvidia-smi, with NVML closed meanwhile. Raises Waits with its output."""
    nvml.close()
    try:
        command = ["nvidia-smi", "--gpu-reset", "-i", card.gpu.address]
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            timeout=RESET_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Waits(f"{card}: nvidia-smi --gpu-reset: {error}; reboot the host") from error
    finally:
        nvml.lib.nvmlInit()
    if done.returncode:
        drm = (
            "; nvidia_drm is loaded, which holds the GPU: modprobe -r nvidia_drm"
            if os.path.isdir("/sys/module/nvidia_drm")
            else ""
        )
        raise Waits(f"{card}: nvidia-smi --gpu-reset: {' '.join(done.stdout.split())[:300]}{drm}; or reboot the host")


def make(nvml: Nvml, change: Change) -> None:
    """Create the missing instances. Raises Failed for those that the driver refuses."""
    handle = nvml.handle(change.card)
    ids = {kind.name: (kind.id, places) for kind, places in nvml.kinds(handle)}
    for place, sizes in change.create:
        number, places = ids[place.profile]
        try:
            instance = nvml.lib.nvmlDeviceCreateGpuInstanceWithPlacement(
                handle, number, ctypes.byref(find_spot(places, place))
            )
        except nvml.error as error:
            raise Failed(
                f"{change.card}: the driver does not create {place.profile} at {place.start}: {error}"
            ) from error
        _cut_up(nvml, change.card, instance, f"{place.profile} at {place.start}", sizes)
    for gi, sizes in change.add:
        _cut_up(nvml, change.card, nvml.lib.nvmlDeviceGetGpuInstanceById(handle, gi), f"GPU instance {gi}", sizes)


def find_spot(places: Sequence[Any], place: mig_fit.Placed) -> Any:
    """Return NVML's own placement with this start."""
    return next(offered for offered in places if offered.start == place.start)


def _cut_up(nvml: Nvml, card: Card, instance: Any, name: str, sizes: Sequence[int]) -> None:
    kinds: dict[int, int] = {}
    for kind in nvml.compute_kinds(instance):
        kinds.setdefault(kind.sliceCount, kind.id)
    for size in sizes:
        if size not in kinds:
            has = ", ".join(f"{kind}c" for kind in sorted(kinds))
            raise Failed(f"{card}: {name} has no compute instance of {size} slices; it has: {has}")
        try:
            nvml.lib.nvmlGpuInstanceCreateComputeInstance(instance, kinds[size])
        except nvml.error as error:
            raise Failed(f"{card}: the driver does not create {size}c in {name}: {error}") from error


def list_missing_nodes(cards: Sequence[Card]) -> list[str]:
    """List capability files of the instances whose device node is missing, or does not have the driver's mode."""
    files = {path: read_node(path) for path in list_capability_files(cards)}
    return [path for path, node in files.items() if node and not is_right_node(node)]


def make_nodes(files: Sequence[str]) -> str | None:
    """Have NVIDIA's own tool make the device nodes, with the driver's modes. Return the problem, or None."""
    tool = shutil.which(MODPROBE)
    if not files:
        return None
    if tool is None:
        return (
            f"{MODPROBE} is not installed: users who are not root cannot open the instances; install the "
            "driver's package of it"
        )
    done = subprocess.run(
        [tool, *[part for file in files for part in ("-f", file)]],
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    return (
        f"{MODPROBE}: {' '.join(done.stderr.split()) or f'exit status {done.returncode}'}" if done.returncode else None
    )
