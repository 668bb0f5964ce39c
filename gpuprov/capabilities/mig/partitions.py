"""Current and future partitions of a host's GPUs, which a plan shows as pictures."""

from typing import Literal

import msgspec

from gpuprov.capabilities.base import Context
from gpuprov.capabilities.mig import host, now
from gpuprov.capabilities.mig.fragment import Mig
from gpuprov.catalog import gpus as catalogue
from gpuprov.facts.probes.base import Facts, ProbeFailed
from gpuprov.facts.probes.gpus import mig
from gpuprov.facts.probes.host import pci, system
from gpuprov.host_code.mig.layout import LayoutError, parse_profile
from gpuprov.host_code.mig.state import format_instance
from gpuprov.spec.model import HostSpec

# The probes that partitions are drawn from.
READS = now.HOST_STATE
Fate = Literal["stays", "created", "destroyed", "cut anew"]


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU instance: its first memory slice, and the number of its slices. `fate`: whether it exists before and
    after."""

    start: int
    size: int
    name: str
    fate: Fate = "stays"


class Partition(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU that changes. `grid`: its memory slices, 0 if their number is unknown before MIG is on; then `after` is
    empty."""

    index: int
    gpu: str
    model: str
    grid: int
    enabled_before: bool
    enabled_after: bool
    before: tuple[Part, ...] = ()
    after: tuple[Part, ...] = ()


def partitions(spec: HostSpec, facts: Facts) -> tuple[Partition, ...]:
    """Return the GPUs whose MIG mode or instances apply would change; none if that cannot be determined. If the driver
    comes in the same apply, return those of the PCI bus, by their models: with MIG off, since no GPU reports its mode
    without a driver."""
    block = spec.capabilities.get("mig")
    if not isinstance(block, Mig):
        return ()
    try:
        answer = _foresee_without_driver(spec, block, facts) or now.list_changes(Context(spec, block, facts))
    except (ProbeFailed, LayoutError):
        return ()
    needs = answer if isinstance(answer, list) else []
    return tuple(_make_partition(need) for need in needs if not need.problem and (need.mode or need.instances))


def _foresee_without_driver(spec: HostSpec, block: Mig, facts: Facts) -> list[host.Needs]:
    """Return the changes that the GPUs of a host will need once it has the driver that its spec asks for; empty if it
    has one."""
    coming = "nvidia_driver" in spec.capabilities and not facts.get(system.CONTAINER)
    if not coming or not facts.get(mig.STATE).complaint:
        return []
    functions = enumerate(pci.driven(facts.get(pci.NVIDIA_FUNCTIONS)))
    gpus = [gpu for index, function in functions if (gpu := _make_gpu_on_bus(index, function))]
    targets = host.list_targets(block, mig.MigState(gpus=tuple(gpus)))
    return [host.needs(gpu, targets[gpu.index]) for gpu in gpus if gpu.index in targets]


def _make_gpu_on_bus(index: int, function: pci.PciFunction) -> mig.MigGpu | None:
    """Return a GPU as NVML will show it; None for an unknown model."""
    # NVML has device and vendor in one number.
    (vendor, device), (owner, board) = (
        identifier.upper().split(":") for identifier in (function.identifier, function.subsystem)
    )
    identifier, subsystem = f"0x{device}{vendor}", f"0x{board}{owner}"
    model = catalogue.find_by_pci_id(identifier, subsystem)
    if model is None:
        return None
    return mig.MigGpu(
        index=index,
        number=index,
        minor=index,
        address=function.address,
        uuid="",
        name=model.key,
        pci=identifier,
        subsystem=subsystem,
        capable=model.mig.capable,
    )


def _make_partition(needs: host.Needs) -> Partition:
    gpu, made = needs.gpu, needs.change
    sizes = {profile.name: profile.size for profile in made.card.profiles}
    recut = {held.id: compute for held, compute in made.recut()}
    gone = {held.id for held in made.destroy}
    before, after = [], []
    for held in made.card.instances:
        fate: Fate = "destroyed" if held.id in gone else "cut anew" if held.id in recut else "stays"
        size = sizes.get(held.profile) or held.size
        before.append(_make_part(held.start, size, held.profile, held.slices, held.sizes, fate))
        if held.id not in gone:
            after.append(_make_part(held.start, size, held.profile, held.slices, recut.get(held.id, held.sizes), fate))
    for at, compute in made.create:
        after.append(
            _make_part(at.start, sizes.get(at.profile, 0), at.profile, made.card.slices(at.profile), compute, "created")
        )
    known = all(part.size for part in (*before, *after)) and not made.blind
    return Partition(
        index=gpu.index,
        gpu=gpu.label,
        model=gpu.name,
        grid=made.card.grid if known else 0,
        enabled_before=gpu.current,
        enabled_after=needs.target.enabled,
        before=tuple(sorted(before, key=lambda part: part.start)),
        after=tuple(sorted(after, key=lambda part: part.start)),
    )


def _make_part(start: int, size: int, profile: str, slices: int, sizes: tuple[int, ...], fate: Fate) -> Part:
    return Part(
        start=start,
        size=size,
        name=format_instance(profile, None, slices or parse_profile(profile).slices, sizes),
        fate=fate,
    )
