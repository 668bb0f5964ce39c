"""Export of the partitions of a host's GPUs as a `mig` block and as a mig-parted configuration."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from gpuprov.capabilities.mig import host
from gpuprov.capabilities.mig.fragment import LayoutEntry, Mig
from gpuprov.facts.probes.base import Facts, ProbeFailed
from gpuprov.facts.probes.gpus import mig
from gpuprov.facts.probes.host import pci
from gpuprov.host_code.at_boot.mig_names import name_device
from gpuprov.host_code.json_members import Json
from gpuprov.host_code.mig import layout as mig_layout
from gpuprov.host_code.mig.state import list_sizes
from gpuprov.spec.build import convert
from gpuprov.spec.model import Fragment

# In the complaint of a host without the driver's library.
NO_DRIVER = "libnvidia-ml.so"
# The mode of a GPU (True for MIG), and its instances: profile, sizes of compute instances.
Cut = tuple[bool, tuple[tuple[str, tuple[int, ...]], ...]]


def doubts(facts: Facts) -> list[str]:
    """Return the GPUs whose MIG mode waits for a reset: their current state is neither the requested one nor that of
    the next boot."""
    words = {True: "enabled", False: "disabled"}
    return [
        f"GPU {gpu.index}: MIG is {words[gpu.current]}, and {words[gpu.pending]} is pending until its next reset"
        for gpu in facts.get(mig.STATE).gpus
        if gpu.current != gpu.pending
    ]


def export(facts: Facts) -> Fragment | None:
    """Return the block; None if no GPU is in MIG mode and gpuprov does not keep any GPU out of it."""
    state = facts.get(mig.STATE)
    if state.complaint and NO_DRIVER not in state.complaint and pci.gpus(facts.get(pci.NVIDIA_FUNCTIONS)):
        raise ProbeFailed(state.complaint)
    kept = facts.get(mig.UNITS)[mig.UNIT].file == "enabled"
    if not any(gpu.current for gpu in state.gpus) and not (kept and any(gpu.capable for gpu in state.gpus)):
        return None
    groups = grouped(state)
    if not any(enabled for enabled, _ in groups):
        return Mig(mode="disabled")
    entries = [_make_entry(cut, _choose_form(state, indexes)) for cut, indexes in groups.items()]
    return Mig(layout=tuple(entries))


def parted(facts: Facts) -> list[dict[str, Json]]:
    """Return the entries of a mig-parted configuration; none if no GPU has MIG.

    mig-parted counts MIG devices and gives no placements. Raises ProbeFailed if its counts would be read differently.
    """
    state = facts.get(mig.STATE)
    if state.complaint:
        raise ProbeFailed(state.complaint)
    entries = []
    for (enabled, instances), indexes in grouped(state).items():
        counts = _count_devices(instances)
        entry: dict[str, Json] = {
            "devices": _choose_form(state, indexes),
            "mig-enabled": enabled,
            "mig-devices": counts,
        }
        if not _gives_instances(counts, instances):
            listed = ", ".join(f"GPU {index}" for index in indexes)
            raise ProbeFailed(
                f"{listed}: mig-parted would put these compute instances into other GPU instances: {counts}"
            )
        entries.append(entry)
    return entries


def grouped(state: mig.MigState) -> dict[Cut, list[int]]:
    """Return the GPUs with MIG, grouped by their partitions. Raises ProbeFailed for partitions that no spec can
    express."""
    groups: dict[Cut, list[int]] = {}
    if state.unread:
        raise ProbeFailed("; ".join(state.unread))
    for gpu in (gpu for gpu in state.gpus if gpu.capable):
        for instance in gpu.instances:
            try:
                mig_layout.parse_profile(instance.profile)
            except mig_layout.LayoutError as error:
                raise ProbeFailed(f"{gpu.label}: {error}") from error
        empty = [instance for instance in gpu.instances if not instance.compute]
        if empty:
            raise ProbeFailed(f"{gpu.label}: {empty[0].profile} has no compute instance, which no spec says")
        order = sorted(gpu.instances, key=lambda instance: (-instance.size, instance.profile, instance.start))
        cut = tuple((instance.profile, host.present(instance)) for instance in order)
        groups.setdefault((gpu.current, cut), []).append(gpu.index)
    return groups


def _choose_form(state: mig.MigState, indexes: Sequence[int]) -> Any:
    return "all" if len(indexes) == sum(gpu.capable for gpu in state.gpus) else list(indexes)


def _count_devices(instances: Sequence[tuple[str, tuple[int, ...]]]) -> dict[str, int]:
    """Return MIG devices as mig-parted names and counts them."""
    names = []
    for profile, compute in instances:
        names += [name_device(profile, size) for size in compute]
    return dict(Counter(names))


def _list_sizes(profile: str, compute: tuple[int, ...]) -> tuple[int, ...]:
    return list_sizes(mig_layout.parse_profile(profile).slices, compute)


def _gives_instances(counts: dict[str, int], instances: Sequence[tuple[str, tuple[int, ...]]]) -> bool:
    """Return whether the counts, read back, give these instances."""
    (entry,) = mig_layout.normalize_layout("enabled", [{"gpus": "all", "instances": counts}])
    read = Counter((instance.profile, _list_sizes(instance.profile, instance.compute)) for instance in entry.instances)
    return read == Counter(instances)


def _make_entry(cut: Cut, gpus: Any) -> LayoutEntry:
    enabled, instances = cut
    written: Any = _count_devices(instances)
    if not _gives_instances(written, instances):
        written = [_make_item(*part, count) for part, count in Counter(instances).items()]
    plain = {"gpus": gpus, "mode": "enabled" if enabled else "disabled", "instances": written}
    entry, findings = convert(plain, LayoutEntry)
    if not isinstance(entry, LayoutEntry):
        raise ProbeFailed(findings[0][1])
    return entry


def _make_item(profile: str, compute: tuple[int, ...], count: int) -> dict[str, Json]:
    whole = compute == _list_sizes(profile, ())
    sizes = {} if whole else {"compute": {f"{size}c": many for size, many in Counter(compute).items()}}
    return {"profile": profile, **({"count": count} if count > 1 else {}), **sizes}
