"""Placements as text and pictures."""

from collections.abc import Iterator, Sequence

from gpuprov.core.sanitize import counted
from gpuprov.hardware.mig import picture
from gpuprov.hardware.mig.model import Model
from gpuprov.hardware.mig.picture import Part
from gpuprov.host_code.mig import fit as mig_fit
from gpuprov.host_code.mig.fit import Placed, Profile
from gpuprov.host_code.mig.layout import Instance


def as_picture(
    model: Model, requested: Sequence[Instance], placed: Sequence[Placed], *, width: int, plain: bool
) -> str:
    """Format the placement, the resources of each instance, and the remaining room."""
    known = {profile.name: profile for profile in model.profiles}
    grid = model.grid or 0
    lines = [f"{mig_fit.format_profiles(instance.profile for instance in placed)} on {model.gpu.key}: fits"]
    for label in (_format_whole, _split_label):
        parts = [
            Part(instance.start, known[instance.profile].size, label(requested[n])) for n, instance in enumerate(placed)
        ]
        drawn = picture.slices(parts, grid, width, plain=plain)
        if drawn:
            lines += ["", *drawn]
            break
    lines += ["", *_format_table(model, requested, placed)]
    lines += ["", f"room for: {_describe_room(model, requested, placed)}"]
    return "\n".join(lines + ([f"note: {model.caveat}"] if model.caveat else []))


def as_strips(model: Model, layouts: Sequence[Sequence[Placed]], *, width: int, plain: bool) -> str:
    """Format one line for each layout, as a strip of slices if the width allows."""
    known = {profile.name: profile for profile in model.profiles}
    grid = model.grid or 0
    drawn = [
        [Part(instance.start, known[instance.profile].size, (instance.profile,)) for instance in layout]
        for layout in layouts
    ]
    inner = max(picture.columns(parts) for parts in drawn)
    lines = [
        f"{model.gpu.key}: {counted(len(layouts), 'layout')} to which no instance can be added, on {grid} memory "
        "slices",
        "",
    ]
    if grid * (inner + 1) + 1 <= width:
        lines += [picture.ruler(grid, inner), *(picture.strip(parts, grid, inner, plain=plain) for parts in drawn)]
    else:
        lines += [", ".join(f"{instance.profile}@{instance.start}" for instance in layout) for layout in layouts]
    return "\n".join(lines + (["", f"note: {model.caveat}"] if model.caveat else []))


def _format_whole(instance: Instance) -> tuple[str, ...]:
    return instance.profile, *_format_compute(instance)


def _split_label(instance: Instance) -> tuple[str, ...]:
    """Split the attributes from the name, as lines below it."""
    end = instance.profile.find("gb") + 2
    return tuple(filter(None, (instance.profile[:end], instance.profile[end:]))) + _format_compute(instance)


def _format_compute(instance: Instance) -> tuple[str, ...]:
    return (" ".join(f"{size}c" for size in instance.compute),) if instance.compute else ()


def _format_table(model: Model, requested: Sequence[Instance], placed: Sequence[Placed]) -> Iterator[str]:
    """List the resources of each instance, in the order of their slices."""
    known = {profile.name: profile for profile in model.known}
    rows = [("instance", "memory slices", "compute slices", "memory", "SMs")]
    for n in sorted(range(len(placed)), key=lambda n: placed[n].start):
        profile = known[placed[n].profile]
        start, last = placed[n].start, placed[n].start + (profile.size or 1) - 1
        compute = "+".join(map(str, requested[n].compute)) if requested[n].compute else ""
        rows.append(
            (
                profile.name,
                f"{start}-{last}" if last > start else f"{start}",
                f"{profile.slices}" + (f" ({compute} in compute instances)" if compute else ""),
                f"{profile.memory_gib} GiB" if profile.memory_gib else "",
                f"{profile.sm}" if profile.sm else "",
            )
        )
    kept = [n for n in range(len(rows[0])) if any(row[n] for row in rows[1:])]
    widths = {n: max(len(row[n]) for row in rows) for n in kept}
    return ("  ".join(row[n].ljust(widths[n]) for n in kept).rstrip() for row in rows)


def _describe_room(model: Model, requested: Sequence[Instance], placed: Sequence[Placed]) -> str:
    """List the profiles of which one more fits beside the present instances."""
    present = [Instance(instance.profile, instance.start, requested[n].compute) for n, instance in enumerate(placed)]

    def fits(profile: Profile) -> bool:
        return not mig_fit.fit(model.profiles, model.grid or 0, [*present, Instance(profile.name)]).reason

    return ", ".join(profile.name for profile in model.profiles if fits(profile)) or "nothing more"
