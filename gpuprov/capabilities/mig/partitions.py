"""How the GPUs of a host are cut up, and how they would be: what a plan shows as pictures."""

from __future__ import annotations

from typing import Literal

import msgspec

from gpuprov.capabilities.base import Context
from gpuprov.capabilities.mig import host, now
from gpuprov.capabilities.mig.fragment import Mig
from gpuprov.onhost.mig.layout import parse_profile
from gpuprov.onhost.mig.state import named
from gpuprov.probe.base import Facts, ProbeFailed
from gpuprov.spec.model import HostSpec

READS = now.HOST_STATE
"""The probes of which partitions are drawn."""
Fate = Literal["stays", "created", "destroyed", "cut anew"]


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU instance: its first memory slice, and how many it has. `fate`: whether it is there before and after."""

    start: int
    size: int
    name: str
    fate: Fate = "stays"


class Partition(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU that changes. `grid`: its memory slices, 0 where nobody knows them before MIG is on; then `after` is empty."""

    index: int
    gpu: str
    model: str
    grid: int
    enabled_before: bool
    enabled_after: bool
    before: tuple[Part, ...] = ()
    after: tuple[Part, ...] = ()


def partitions(spec: HostSpec, facts: Facts) -> tuple[Partition, ...]:
    """The GPUs whose MIG mode or instances apply would change; none where that cannot be said."""
    block = spec.capabilities.get("mig")
    if not isinstance(block, Mig):
        return ()
    try:
        found = now.wanted(Context(spec, block, facts))
    except ProbeFailed:
        return ()
    wanted = found if isinstance(found, list) else []
    return tuple(_partition(one) for one in wanted if not one.problem and (one.mode or one.instances))


def _partition(one: host.Needs) -> Partition:
    gpu, made = one.gpu, one.change
    sizes = {profile.name: profile.size for profile in made.card.profiles}
    recut = {held.id: compute for held, compute in made.recut()}
    gone = {held.id for held in made.destroy}
    before, after = [], []
    for held in made.card.instances:
        fate: Fate = "destroyed" if held.id in gone else "cut anew" if held.id in recut else "stays"
        size = sizes.get(held.profile) or held.size
        before.append(_part(held.start, size, held.profile, held.slices, held.sizes, fate))
        if held.id not in gone:
            after.append(_part(held.start, size, held.profile, held.slices, recut.get(held.id, held.sizes), fate))
    for at, compute in made.create:
        after.append(
            _part(at.start, sizes.get(at.profile, 0), at.profile, made.card.slices(at.profile), compute, "created")
        )
    known = all(part.size for part in (*before, *after)) and not made.blind
    return Partition(
        index=gpu.index,
        gpu=gpu.told,
        model=gpu.name,
        grid=made.card.grid if known else 0,
        enabled_before=gpu.current,
        enabled_after=one.target.enabled,
        before=tuple(sorted(before, key=lambda part: part.start)),
        after=tuple(sorted(after, key=lambda part: part.start)),
    )


def _part(
    start: int,
    size: int,
    profile: str,
    slices: int,
    sizes: tuple[int, ...],
    fate: Fate,
) -> Part:
    return Part(
        start=start, size=size, name=named(profile, None, slices or parse_profile(profile).slices, sizes), fate=fate
    )
