"""The desired state of a host's GPUs under the `mig` block, and the changes that each still needs."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gpuprov.capabilities.base import Change
from gpuprov.capabilities.mig import config_file
from gpuprov.capabilities.mig.fragment import Mig, plain_layout
from gpuprov.catalog import gpus as catalogue
from gpuprov.catalog.drivers.sets import is_gpu_service, list_gpu_services
from gpuprov.facts.probes.gpus.mig import GpuInstance, MigGpu, MigState, User
from gpuprov.hardware.mig import model_of
from gpuprov.host_code.clients import OURS
from gpuprov.host_code.mig import fit as mig_fit
from gpuprov.host_code.mig import layout as mig_layout
from gpuprov.host_code.mig import plan, state
from gpuprov.spec.model import HostSpec


class Needs(NamedTuple):
    """The changes that bring a GPU to its target, as the program on the host computes them, too. `problem`: why that is
    impossible."""

    gpu: MigGpu
    target: mig_layout.Target
    change: plan.Change

    @property
    def problem(self) -> str:
        return f"{self.gpu.label}: {self.change.problem}" if self.change.problem else ""

    @property
    def mode(self) -> bool:
        """Return whether its MIG mode differs from the spec, now or after its next reset."""
        return self.change.mode

    @property
    def instances(self) -> bool:
        """Return whether its instances differ from the spec."""
        made = self.change
        return bool(made.destroy or made.create or made.cut or made.add or made.blind)


def entries(block: Mig) -> list[mig_layout.Entry]:
    """Return the entries of the layout, or of the configuration selected in config_file. Raises LayoutError."""
    if not block.config_file:
        return mig_layout.normalize_layout(block.mode, plain_layout(block))
    config = config_file.read(block.config_file, block.selected)
    if config.troubles:
        raise mig_layout.LayoutError(config.troubles[0].message)
    return mig_layout.normalize_layout(block.mode, [], config.entries)


def enables(block: Mig) -> bool:
    """Return whether any GPU is to be in MIG mode. Raises LayoutError."""
    return any(entry.enabled for entry in entries(block))


def seen(gpu: MigGpu) -> mig_layout.Gpu:
    """Return a GPU as layouts name it."""
    known = catalogue.find_by_pci_id(gpu.pci, gpu.subsystem)
    model = known.key if known else ""
    return mig_layout.Gpu(gpu.index, gpu.address, gpu.uuid, model, gpu.name, gpu.pci, gpu.subsystem, gpu.capable)


def without(gpu: MigGpu) -> str:
    """Describe a GPU that has no MIG; and what its model needs for MIG, if it supports it."""
    known = catalogue.find_by_pci_id(gpu.pci, gpu.subsystem)
    oldest = [vbios.version for vbios in known.mig.min_vbios] if known else []
    why = f" (VBIOS {oldest[0]} or newer, and compute mode by NVIDIA's displaymodeselector)" if oldest else ""
    return f"{gpu.label} {gpu.name} has no MIG{why}"


def left_out(block: Mig, mig_state: MigState) -> list[MigGpu]:
    """Return the GPUs that an entry for all GPUs would partition, but for which the driver reports no MIG, although
    their model has it."""
    meant = any(entry.gpus is None and entry.enabled for entry in entries(block))
    known = {
        gpu: catalogue.find_by_pci_id(gpu.pci, gpu.subsystem) for gpu in mig_state.gpus if meant and not gpu.capable
    }
    return [gpu for gpu, model in known.items() if model and model.mig.capable]


def list_targets(block: Mig, state: MigState) -> dict[int, mig_layout.Target]:
    """Return the target of each GPU by index; a GPU without MIG, and one that no entry names, is absent. Raises
    LayoutError."""
    return mig_layout.select_targets(entries(block), [seen(gpu) for gpu in state.gpus])


def table(gpu: MigGpu) -> tuple[tuple[mig_fit.Profile, ...], int]:
    """Return profiles and memory slices of a GPU: the driver's own, or the catalogue's while MIG is off; none if
    neither knows."""
    own = tuple(
        _make_profile(profile.name, profile.slices, profile.size, profile.starts, profile.count)
        for profile in gpu.profiles
        if profile.starts
    )
    if own:
        return own, max(start + profile.size for profile in own for start in profile.starts)
    known = catalogue.find_by_pci_id(gpu.pci, gpu.subsystem)
    model = model_of(known) if known else None
    return (model.profiles, model.grid) if model and model.grid is not None else ((), 0)


def _make_profile(name: str, slices: int, size: int, starts: tuple[int, ...], count: int) -> mig_fit.Profile:
    media = bool({"me", "me.all"} & {*mig_layout.parse_profile(name).attributes})
    return mig_fit.Profile(name, slices, size, starts, count, media)


def present(gpu_instance: GpuInstance) -> tuple[int, ...]:
    """Return the sizes of a GPU instance's compute instances, largest first."""
    return tuple(sorted((part.slices for part in gpu_instance.compute), reverse=True))


def card(gpu: MigGpu) -> state.Card:
    """Return a GPU as the program on the host reads it. Raises LayoutError for an instance whose profile has an unknown
    name."""
    instances = tuple(
        state.Present(
            instance.id,
            instance.profile,
            mig_layout.parse_profile(instance.profile, gpu.label).slices,
            instance.start,
            instance.size,
            tuple(state.Compute(part.id, part.start, part.slices) for part in instance.compute),
        )
        for instance in gpu.instances
    )
    return state.Card(seen(gpu), gpu.minor, resets(gpu), int(gpu.current), int(gpu.pending), table(gpu)[0], instances)


def as_user(user: User) -> state.User:
    held = user.holder
    return state.User(held.pid, held.command, "", held.unit, user.gpu, user.instance, user.part, user.computes)


def needs(gpu: MigGpu, target: mig_layout.Target, users: Sequence[User] = ()) -> Needs:
    """Return the changes that a GPU needs, moving nothing that is in use if possible. Raises LayoutError (`card`)."""
    return Needs(gpu, target, plan.plan_change(card(gpu), target, [as_user(user) for user in users]))


def resets(gpu: MigGpu) -> bool:
    """Return whether a change of MIG mode resets the GPU: on Ampere, and on no later architecture."""
    known = catalogue.find_by_pci_id(gpu.pci, gpu.subsystem)
    return known is not None and known.arch == "Ampere"


def services(spec: HostSpec) -> list[str]:
    """Return the units that apply may stop for a change and starts again; names may be patterns."""
    return [OURS, *list_gpu_services(spec.site)]


def is_service(unit: str, spec: HostSpec) -> bool:
    """Return whether a unit is among `services`."""
    return is_gpu_service(unit, spec.site)


def concerns(needs: Needs, user: User) -> bool:
    """Return whether a GPU's change removes something that a process uses."""
    return needs.change.concerns(as_user(user))


def named(gpu_instance: GpuInstance) -> str:
    """Return `3g.40gb at 4`, with its compute instances unless there is one with all slices."""
    return state.format_instance(
        gpu_instance.profile,
        gpu_instance.start,
        mig_layout.parse_profile(gpu_instance.profile).slices,
        present(gpu_instance),
    )


def changes(needs: Needs) -> list[Change]:
    """Return the changes that apply makes to a GPU."""
    gpu, made = needs.gpu, needs.change
    mode = ["enabled" if on else "disabled" for on in (gpu.current, needs.target.enabled)]
    rows = [Change(kind="setting", name=f"{gpu.label}: MIG mode", before=mode[0], after=mode[1])] if needs.mode else []
    for gone in made.destroy:
        name = state.format_instance(gone.profile, gone.start, gone.slices, gone.sizes)
        rows.append(Change(kind="setting", name=f"{gpu.label}: {name}", before="there", after="destroyed"))
    for at, compute in made.create:
        name = state.format_instance(at.profile, at.start, made.card.slices(at.profile), compute)
        rows.append(Change(kind="setting", name=f"{gpu.label}: {name}", after="created"))
    if made.blind:
        rows.append(Change(kind="setting", name=f"{gpu.label}: its instances", after="created"))
    for held, compute in made.recut():
        name = f"{gpu.label}: compute instances of {held.profile} at {held.start}"
        rows.append(
            Change(kind="setting", name=name, before=_describe_sizes(held.sizes), after=_describe_sizes(compute))
        )
    return rows


def _describe_sizes(compute: Iterable[int]) -> str:
    return ", ".join(f"{size}c" for size in compute) or "none"
