"""MIG on the good host, told as its probes print it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from gpuprov.catalog.gpus import find_gpu
from gpuprov.catalog.mig import list_profiles

H100, A100, T4 = "H100-SXM5-80GB", "A100-SXM4-40GB", "T4"
Cut = tuple[str, int, tuple[int, ...]]
"""A GPU instance: profile, start, sizes of its compute instances."""


def instance(number: int, profile: str, start: int, compute: Sequence[int], first: int) -> dict[str, Any]:
    parts = [
        {"id": at, "slices": slices, "start": at, "number": first + at, "uuid": f"MIG-{number}-{at}"}
        for at, slices in enumerate(compute)
    ]
    return {"id": number, "profile": profile, "start": start, "size": 1, "compute": parts}


def gpu(
    *cuts: Cut, index: int = 0, model: str = H100, on: bool = True, pending: bool | None = None, capable: bool = True,
    processes: Sequence[dict[str, Any]] = (), known: bool = True,
) -> dict[str, Any]:  # fmt: skip
    """A GPU as the reader prints it, with these instances (ids from 1). `known`: NVML tells its profiles."""
    found = find_gpu(model)
    assert found
    identifier = found.pci_ids[0].id.partition(":")[2].upper()
    said: dict[str, Any] = {
        "index": index, "number": index, "minor": index, "address": f"0000:{19 + 10 * index}:00.0",
        "uuid": f"GPU-{index}",
        "name": found.aliases[0].name, "pci": f"0x{identifier}10DE", "subsystem": "0x16C110DE", "capable": capable,
    }  # fmt: skip
    if not capable:
        return said
    instances, devices = [], 0
    for number, (profile, start, compute) in enumerate(cuts, 1):
        instances.append(instance(number, profile, start, compute, devices))
        devices += len(compute)
    profiles = [
        {"name": one.name, "id": one.nvsmi_id, "slices": one.slices, "count": one.max_count, "size": one.size,
         "starts": list(one.starts)}
        for one in list_profiles(found)
    ]  # fmt: skip
    said |= {"current": on, "pending": on if pending is None else pending, "processes": list(processes)}
    return said | ({"profiles": profiles if known else [], "instances": instances} if on else {})


def state(*gpus: dict[str, Any], unread: Sequence[str] = (), complaint: str = "") -> str:
    """What the reader prints of these GPUs."""
    return json.dumps({"complaint": complaint} if complaint else {"gpus": list(gpus), "unread": list(unread)})


def units(file: str = "", manager: str = "") -> str:
    """What systemd says of gpuprov's unit and of NVIDIA's manager: whether each starts at a boot."""
    rows = {"nvidia-mig-manager.service": manager, "gpuprov-mig.service": file}
    return "\n".join(
        f"Id={name}\nLoadState={'loaded' if state else 'not-found'}\nActiveState=inactive\nUnitFileState={state}\n"
        for name, state in rows.items()
    )


def capabilities(*paths: str, mode: str = "444", modify: int = 1, owner: str = "root:root") -> str:
    """The driver's capability files, each with a device file of this mode ("": none)."""
    return "".join(
        f"{path}|{12 + number}|292|{modify}|{f'{mode}|{owner}' if mode else '|'}\n" for number, path in enumerate(paths)
    )


PROBES = {"mig": state(gpu(on=False)), "mig_units": units(), "mig_capabilities": "", "mig_holders": ""}
