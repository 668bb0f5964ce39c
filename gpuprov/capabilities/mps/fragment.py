"""The `mps` block, and what follows from it on a given host."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec

from gpuprov.core.safe_parse import is_whole
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.gpus.mps import MPS, Gpu, MpsState
from gpuprov.facts.probes.host import pci
from gpuprov.facts.probes.host.system import CONTAINER
from gpuprov.spec.model import Fragment

Scope = Literal["none", "host", "gpu", "groups", "mig"]
SELECTOR = r"^([0-9]+|([0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]|GPU-[0-9a-f][0-9a-f-]{7,35})$"
Selector = (
    Annotated[int, msgspec.Meta(ge=0, le=63)]
    | Annotated[str, msgspec.Meta(pattern=SELECTOR, description='"0000:3b:00.0" or "GPU-<uuid>"')]
)
Name = Annotated[str, msgspec.Meta(pattern=r"^([a-z][a-z0-9_]{0,31})?$", description="lower-case letters, digits, _")]
Limit = Annotated[str, msgspec.Meta(pattern=r"^[1-9][0-9]{0,6}[GM]$", description="8G or 900M")]
Device = Annotated[
    str, msgspec.Meta(pattern=f"^all$|{SELECTOR}", description='all, "0", "0000:3b:00.0" or "GPU-<uuid>"')
]
UnitName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9@_.:-]+\.service$", description="a service's name")]


class Group(Fragment, frozen=True, omit_defaults=True):
    """GPUs that share a daemon."""

    gpus: Annotated[
        tuple[Selector, ...], msgspec.Meta(min_length=1, description="its GPUs, by index, PCI address or UUID")
    ]
    name: Annotated[
        Name, msgspec.Meta(description="its daemon's name: lower-case letters, digits, _; empty: group0, group1, ...")
    ] = ""


class Mps(Fragment, frozen=True):
    """MPS control daemons as services: one for the host, for each GPU, for each group of GPUs or for each MIG device.

    Daemons that are no longer wanted are stopped and removed. A daemon with clients is never restarted; limits are
    changed while it runs, for clients that start later.
    """

    scope: Annotated[
        Scope,
        msgspec.Meta(description="what has a daemon of its own; none stops and removes those that gpuprov made"),
    ] = "host"
    groups: Annotated[
        tuple[Group, ...],
        msgspec.Meta(
            description="with scope groups: the GPUs of each daemon, which is called group0 and on, or by name"
        ),
    ] = ()
    protocol: Annotated[
        Literal["v2", "v3"],
        msgspec.Meta(
            description="the control interface. v3 has one named server with the limits, and needs driver branch 615"
        ),
    ] = "v2"
    compute_mode: Annotated[
        Literal["auto", "exclusive_process", "default"],
        msgspec.Meta(
            description="the compute mode of the daemons' GPUs, set at each start; auto is exclusive_process, but "
            "on MIG devices, which have none"
        ),
    ] = "auto"
    active_thread_percentage: Annotated[
        int, msgspec.Meta(ge=1, le=100, description="the share of a GPU's threads that one client may use, in percent")
    ] = 100
    pinned_memory_limit: Annotated[
        dict[Device, Limit],
        msgspec.Meta(
            description="device memory that one client may have (8G, 900M), by index, PCI address or UUID of a GPU; "
            "all stands for every other one. The daemon shows limits from 1024M on in whole gigabytes"
        ),
    ] = {}
    priority: Annotated[
        Literal["normal", "below-normal"], msgspec.Meta(description="the priority of clients that say none themselves")
    ] = "normal"
    static_partitions: Annotated[
        tuple[Annotated[int, msgspec.Meta(ge=1, le=64)], ...],
        msgspec.Meta(
            description="SM partitions of each GPU, in chunks (8 SMs from Hopper on, 4 before); from driver branch 590 "
            "and Ampere on. A client has to say its partition"
        ),
    ] = ()
    user: Annotated[
        str,
        msgspec.Meta(
            pattern=r"^([a-z_][a-z0-9_-]*[$]?|[0-9]+)?$",
            description="the only user served, by name or number: the server is started beforehand, and another "
            "user's is a failure; without, the first client starts it",
        ),
    ] = ""
    clients: Annotated[
        int,
        msgspec.Meta(
            ge=0,
            le=1000,
            description="how many clients a device should take at least, which driver, GPU and MIG device are "
            "judged by; 0 asks for nothing",
        ),
    ] = 0
    shm_size: Annotated[
        str,
        msgspec.Meta(
            pattern=r"^([1-9][0-9]{0,6}[GM])?$",
            description="the least size of /dev/shm, such as 16G or 900M, through which clients and server share "
            "pinned memory; empty leaves it alone",
        ),
    ] = ""
    profile: Annotated[
        bool, msgspec.Meta(description="login shells are clients of the one daemon, by /etc/profile.d/gpuprov-mps.sh")
    ] = False
    units: Annotated[
        dict[UnitName, Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9_-]*$", description="a daemon's name")]],
        msgspec.Meta(
            description="services that are clients, each with the name of its daemon (host, gpu0, a group, "
            "gpu0-mig4) or of a partition (gpu0-1). They take it at their next start"
        ),
    ] = {}
    container_directory: Annotated[
        str,
        msgspec.Meta(
            pattern=r"^(/[A-Za-z0-9._/-]+)?$",
            description="where a snippet for containers of each daemon's clients is written (NAME.yaml: environment, "
            "volumes, ipc); empty: none",
        ),
    ] = ""

    @property
    def exclusive(self) -> bool:
        """Return whether the GPUs should be in compute mode EXCLUSIVE_PROCESS."""
        return self.compute_mode == "exclusive_process" or (self.compute_mode == "auto" and self.scope != "mig")


class Wanted(msgspec.Struct, frozen=True):
    """A daemon that the host should have: its name, and the UUIDs of its devices in its own order."""

    name: str
    devices: tuple[str, ...]


def group_names(fragment: Mps) -> list[str]:
    """Return the names of the groups' daemons."""
    return [group.name or f"group{number}" for number, group in enumerate(fragment.groups)]


def canonical(selector: int | str) -> str:
    """Return an index as a number, a PCI address with its domain in four digits; a UUID as it is."""
    text = str(selector)
    if is_whole(text):
        return str(int(text))
    if text.startswith("GPU-"):
        return text
    domain, _, rest = text.rpartition(":")[0].rpartition(":")
    return f"{int(domain or '0', 16):04x}:{rest}:{text.rpartition(':')[2]}"


def selects(selector: int | str, gpu: Gpu) -> bool:
    """Return whether a selector names this GPU."""
    name = canonical(selector)
    return name in (str(gpu.index), gpu.address) or (name.startswith("GPU-") and gpu.uuid.startswith(name))


# Probes of the daemons.
STATE = (MPS, CONTAINER, pci.NVIDIA_FUNCTIONS)


def list_daemons(fragment: Mps, state: MpsState) -> tuple[list[Wanted], str]:
    """Return the daemons for the GPUs that the host has now; or why there can be none. The names of MIG devices'
    daemons are unknown here."""
    if fragment.scope == "none":
        return [], ""
    if not state.gpus:
        return [], state.complaint or "nvidia-smi lists no GPU"
    if fragment.scope == "mig":
        return [Wanted("", (device,)) for gpu in state.gpus for device in gpu.mig_devices], ""
    if fragment.scope == "groups":
        return _build_groups(fragment, state)
    if in_mig := [gpu for gpu in state.gpus if gpu.mig]:
        return [], f"GPU {in_mig[0].index} is in MIG mode"
    if fragment.scope == "host":
        return [Wanted("host", tuple(gpu.uuid for gpu in state.gpus))], ""
    return [Wanted(f"gpu{gpu.index}", (gpu.uuid,)) for gpu in state.gpus], ""


def without_gpu(facts: Facts) -> str:
    """Return why these checks do not apply: no GPU, or a container whose machine has no driver loaded; empty
    otherwise."""
    if not pci.gpus(facts.get(pci.NVIDIA_FUNCTIONS)):
        return "no NVIDIA GPU on the PCI bus"
    kind, state = facts.get(CONTAINER), facts.get(MPS)
    if not kind or state.gpus:
        return ""
    return f"{kind} container without a loaded driver of its machine's: {state.complaint or 'nvidia-smi lists no GPU'}"


def listed(state: MpsState) -> str:
    """Return the host's GPUs, by all of their names."""
    return ", ".join(f"{gpu.index} ({gpu.address}, {gpu.uuid})" for gpu in state.gpus)


def _build_groups(fragment: Mps, state: MpsState) -> tuple[list[Wanted], str]:
    rows: list[Wanted] = []
    taken: dict[str, str] = {}
    for name, group in zip(group_names(fragment), fragment.groups, strict=True):
        devices = []
        for selector in group.gpus:
            matches = [gpu for gpu in state.gpus if selects(selector, gpu)]
            if len(matches) != 1:
                return [], f"no GPU is {selector}; there are: {listed(state)}"
            if matches[0].mig:
                return [], f"GPU {matches[0].index} of {name} is in MIG mode"
            if matches[0].uuid in taken:
                return [], f"GPU {matches[0].index} is in {taken[matches[0].uuid]} and again in {name}"
            taken[matches[0].uuid] = name
            devices.append(matches[0].uuid)
        rows.append(Wanted(name, tuple(devices)))
    return rows, ""


def limit_for(fragment: Mps, device: str, state: MpsState) -> str:
    """Return the memory limit of a device; empty for none."""
    limits = fragment.pinned_memory_limit
    gpu = next((gpu for gpu in state.gpus if gpu.uuid == device), None)
    named = next((value for key, value in limits.items() if key != "all" and gpu and selects(key, gpu)), "")
    return named or limits.get("all", "")


def shown(limit: str) -> str:
    """Return a memory limit as the daemon shows it: from 1024M on in whole gigabytes, rounded down."""
    number = int(limit[:-1] or 0) if limit else 0
    return f"{number // 1024}G" if limit.endswith("M") and number >= 1024 else limit


def daemon_pattern(fragment: Mps, count: int | None) -> str:
    """Return a pattern of the names that daemons of this block can have."""
    part = r"(-[0-9]+)?" if fragment.static_partitions else ""
    if fragment.scope == "groups":
        return f"({'|'.join(map(re.escape, group_names(fragment)))}){part}"
    if fragment.scope == "gpu":
        index = "[0-9]+" if count is None else f"({'|'.join(map(str, range(count)))})"
        return f"gpu{index}{part}"
    return {"host": "host", "mig": r"gpu[0-9]+-mig[0-9]+(-ci[0-9]+)?" + part}.get(fragment.scope, "")
