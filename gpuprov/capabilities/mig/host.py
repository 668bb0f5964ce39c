"""What the `mig` block asks of the GPUs that a host has, and what each of them still needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import NamedTuple

from gpuprov.capabilities.base import Change
from gpuprov.capabilities.mig import config_file
from gpuprov.capabilities.mig.fragment import Mig, plain_layout
from gpuprov.catalog import gpus as catalogue
from gpuprov.catalog.driver_sets import GPU_SERVICES
from gpuprov.mig import model_of
from gpuprov.probe.mig import GpuInstance, MigGpu, MigState, User
from gpuprov.shared import mig_fit, mig_layout
from gpuprov.spec.model import HostSpec

OWN = ("gpuprov-persistence.service",)
"""A unit of gpuprov's own that holds GPUs, beside GPU_SERVICES."""


class Needs(NamedTuple):
    """What one GPU needs to be its target. `recut`: GPU instances that stay, with the sizes that their compute instances should have.

    `problem`: why it cannot be. `blind`: where instances can be is not known before MIG mode is enabled.
    """

    gpu: MigGpu
    target: mig_layout.Target
    destroy: tuple[GpuInstance, ...] = ()
    create: tuple[tuple[mig_fit.Placed, tuple[int, ...]], ...] = ()
    recut: tuple[tuple[GpuInstance, tuple[int, ...]], ...] = ()
    problem: str = ""
    blind: bool = False

    @property
    def mode(self) -> bool:
        """Whether its MIG mode is not as wanted, now or after its next reset."""
        return {self.gpu.current, self.gpu.pending} != {self.target.enabled}

    @property
    def instances(self) -> bool:
        """Whether its instances are not as wanted."""
        return bool(self.destroy or self.create or self.recut or self.blind)


def entries(block: Mig) -> list[mig_layout.Entry]:
    """The entries of the layout, or of the configuration selected in config_file. Raises LayoutError."""
    if not block.config_file:
        return mig_layout.normalise(block.mode, plain_layout(block))
    found = config_file.read(block.config_file, block.selected)
    if found.troubles:
        raise mig_layout.LayoutError(found.troubles[0].message)
    return mig_layout.normalise(block.mode, [], found.entries)


def enables(block: Mig) -> bool:
    """Whether any GPU is asked to be in MIG mode. Raises LayoutError."""
    return any(entry.enabled for entry in entries(block))


def seen(gpu: MigGpu) -> mig_layout.Gpu:
    """A GPU as layouts name it."""
    known = catalogue.by_pci_id(gpu.pci, gpu.subsystem)
    return mig_layout.Gpu(
        index=gpu.index,
        address=gpu.address,
        uuid=gpu.uuid,
        model=known.key if known else "",
        name=gpu.name,
        pci=gpu.pci,
        subsystem=gpu.subsystem,
        capable=gpu.capable,
    )


def asked(block: Mig, state: MigState) -> dict[int, mig_layout.Target]:
    """By index, what each GPU should be; one without MIG, and one that no entry names, is absent. Raises LayoutError."""
    return mig_layout.targets(entries(block), [seen(gpu) for gpu in state.gpus])


def table(gpu: MigGpu) -> tuple[tuple[mig_fit.Profile, ...], int]:
    """Profiles and memory slices of a GPU: the driver's own, or the catalogue's while MIG is off; none where neither knows."""
    own = tuple(_profile(one.name, one.slices, one.size, one.starts, one.count) for one in gpu.profiles if one.starts)
    if own:
        return own, max(start + one.size for one in own for start in one.starts)
    known = catalogue.by_pci_id(gpu.pci, gpu.subsystem)
    model = model_of(known) if known else None
    return (model.profiles, model.grid) if model and model.grid is not None else ((), 0)


def _profile(name: str, slices: int, size: int, starts: tuple[int, ...], count: int) -> mig_fit.Profile:
    media = bool({"me", "me.all"} & {*mig_layout.parse_profile(name).attributes})
    return mig_fit.Profile(name, slices, size, starts, count, media)


def sizes(profile: str, compute: Iterable[int]) -> tuple[int, ...]:
    """Sizes of compute instances, largest first; none said: one that has all slices."""
    return tuple(sorted(compute, reverse=True)) or (mig_layout.parse_profile(profile).slices,)


def present(one: GpuInstance) -> tuple[int, ...]:
    """The sizes of a GPU instance's compute instances, largest first."""
    return tuple(sorted((part.slices for part in one.compute), reverse=True))


def needs(gpu: MigGpu, target: mig_layout.Target, users: Sequence[User] = ()) -> Needs:
    """What a GPU needs, moving nothing that is in use where that can be: what `apply` decides by the same search.

    Raises LayoutError for an instance whose profile has a name that nobody knows.
    """
    for one in gpu.instances:
        mig_layout.parse_profile(one.profile, gpu.told)
    if not target.enabled or not target.instances:
        return Needs(gpu, target, destroy=gpu.instances)
    known, grid = table(gpu)
    if not known:
        return Needs(gpu, target, destroy=gpu.instances, blind=True)
    there = tuple(_instance(one) for one in gpu.instances)
    used = {user.instance for user in users if user.gpu == gpu.index}
    busy = tuple(known for known, one in zip(there, gpu.instances, strict=True) if one.id in used)
    found = _fit(known, grid, target.instances, there, busy)
    if not found.placed and busy:
        found = _fit(known, grid, target.instances, there, ())
    if not found.placed:
        instead = "; or ".join(mig_fit.named(one) for one in found.instead)
        return Needs(
            gpu, target, problem=f"{gpu.told}: {found.reason}" + (f"; what fits: {instead}" if instead else "")
        )
    return _difference(gpu, target, found.placed)


@lru_cache(maxsize=1024)
def _fit(
    profiles: tuple[mig_fit.Profile, ...],
    grid: int,
    wanted: tuple[mig_layout.Instance, ...],
    there: tuple[mig_layout.Instance, ...],
    busy: tuple[mig_layout.Instance, ...],
) -> mig_fit.Fit:
    """One search for the many GPUs and checks that ask the same."""
    return mig_fit.fit(profiles, grid, wanted, there, busy)


def _instance(one: GpuInstance) -> mig_layout.Instance:
    whole = present(one) == sizes(one.profile, ())
    return mig_layout.Instance(one.profile, one.start, () if whole else present(one))


def _difference(gpu: MigGpu, target: mig_layout.Target, placed: Sequence[mig_fit.Placed]) -> Needs:
    aim = {
        (at.profile, at.start): sizes(at.profile, one.compute) for at, one in zip(placed, target.instances, strict=True)
    }
    there = {(one.profile, one.start): one for one in gpu.instances}
    new = sorted((key for key in aim if key not in there), key=lambda key: key[1])
    return Needs(
        gpu,
        target,
        destroy=tuple(one for key, one in there.items() if key not in aim),
        create=tuple((mig_fit.Placed(*key), aim[key]) for key in new),
        recut=tuple((one, aim[key]) for key, one in there.items() if key in aim and present(one) != aim[key]),
    )


def resets(gpu: MigGpu) -> bool:
    """Whether a change of MIG mode resets the GPU: on Ampere, and on no later architecture."""
    known = catalogue.by_pci_id(gpu.pci, gpu.subsystem)
    return known is not None and known.arch == "Ampere"


def is_service(unit: str, spec: HostSpec) -> bool:
    """Whether a unit is one that apply stops for a change, and starts again."""
    known = spec.site.get("host_gpu_services", GPU_SERVICES)
    return any(fnmatchcase(unit, str(name)) for name in (*(known if isinstance(known, list) else GPU_SERVICES), *OWN))


def concerns(one: Needs, user: User) -> bool:
    """Whether a GPU's change takes away what a process uses."""
    if user.gpu != one.gpu.index:
        return False
    if one.gpu.current != one.target.enabled:
        return user.computes or resets(one.gpu)
    if user.instance is None:
        return False
    return user.instance in {gone.id for gone in one.destroy} or any(
        user.instance == held.id and (user.part is None or not _stays(held, compute, user.part))
        for held, compute in one.recut
    )


def _stays(held: GpuInstance, compute: tuple[int, ...], part: int) -> bool:
    return any(one.id == part and one.slices in compute for one in held.compute)


def named(profile: str, start: int, compute: Sequence[int]) -> str:
    """`3g.40gb at 4`, with its compute instances where they are not one that has all slices."""
    parts = ", ".join(f"{size}c" for size in compute) or "no compute instance"
    return f"{profile} at {start}" + ("" if tuple(compute) == sizes(profile, ()) else f" with {parts}")


def changes(one: Needs) -> list[Change]:
    """What apply does about it."""
    gpu = one.gpu
    mode = ["enabled" if state else "disabled" for state in (gpu.current, one.target.enabled)]
    made = [Change(kind="setting", name=f"{gpu.told}: MIG mode", before=mode[0], after=mode[1])] if one.mode else []
    for instance in one.destroy:
        name = named(instance.profile, instance.start, present(instance))
        made.append(Change(kind="setting", name=f"{gpu.told}: {name}", before="there", after="destroyed"))
    for at, compute in one.create:
        made.append(Change(kind="setting", name=f"{gpu.told}: {named(*at, compute)}", after="created"))
    if one.blind:
        made.append(Change(kind="setting", name=f"{gpu.told}: its instances", after="created"))
    for instance, compute in one.recut:
        name = f"{gpu.told}: compute instances of {instance.profile} at {instance.start}"
        made.append(Change(kind="setting", name=name, before=_sizes(present(instance)), after=_sizes(compute)))
    return made


def _sizes(compute: Iterable[int]) -> str:
    return ", ".join(f"{size}c" for size in compute) or "none"
