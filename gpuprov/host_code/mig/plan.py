"""The changes from a GPU's state to its target: instances to keep, destroy and create. Pure."""

from __future__ import annotations

import itertools
from functools import lru_cache
from typing import Collection, Iterable, NamedTuple, Sequence

from . import fit as mig_fit
from . import layout as mig_layout
from .state import Card, Compute, Present, User, format_instance, list_sizes


class Change(NamedTuple):
    """The changes that one GPU needs, in the order in which they are made: `cut` compute instances, `destroy`, mode,
    `create`, `add`."""

    card: Card
    enabled: bool
    # (GPU instance, compute instance).
    cut: tuple[tuple[int, int], ...] = ()
    destroy: tuple[Present, ...] = ()
    # With the sizes of compute instances.
    create: tuple[tuple[mig_fit.Placed, tuple[int, ...]], ...] = ()
    # Sizes of further compute instances of a GPU instance that stays.
    add: tuple[tuple[int, tuple[int, ...]], ...] = ()
    # The reason why it is impossible.
    problem: str = ""
    # Placements are not known before MIG is on.
    blind: bool = False

    @property
    def mode(self) -> bool:
        """True if the MIG mode changes."""
        return (self.card.current, self.card.pending) != (int(self.enabled), int(self.enabled))

    @property
    def switches(self) -> bool:
        """True if the current mode changes, and not only the pending one."""
        return self.card.current != int(self.enabled)

    @property
    def anything(self) -> bool:
        return bool(self.mode or self.cut or self.destroy or self.create or self.add)

    def recut(self) -> list[tuple[Present, tuple[int, ...]]]:
        """GPU instances that stay, each with the future sizes of its compute instances, largest first."""
        gone, more = set(self.cut), dict(self.add)
        by_instance = []
        for instance in self.card.instances:
            sizes = [part.size for part in instance.compute if (instance.id, part.id) not in gone]
            if len(sizes) < len(instance.compute) or instance.id in more:
                by_instance.append((instance, tuple(sorted((*sizes, *more.get(instance.id, ())), reverse=True))))
        return by_instance

    def steps(self) -> list[str]:
        """Return the steps for people, one per line."""
        known = {instance.id: instance for instance in self.card.instances}
        lines = [f"destroy {size}c of {known[gi]}" for gi, size in self._cut_sizes(known)]
        lines += [f"destroy {instance}" for instance in self.destroy]
        lines += [self._mode()] * self.mode
        lines += [
            f"create {format_instance(at.profile, at.start, self.card.slices(at.profile), sizes)}"
            for at, sizes in self.create
        ]
        lines += ["create its instances"] * self.blind
        lines += [f"create {size}c in {known[gi]}" for gi, sizes in self.add for size in sizes]
        return [f"{self.card}: {line}" for line in lines]

    def _mode(self) -> str:
        if not self.switches:
            return f"keep MIG mode {'enabled' if self.enabled else 'disabled'}"
        return f"{'enable' if self.enabled else 'disable'} MIG mode{' by a reset' if self.card.resets else ''}"

    def _cut_sizes(self, known: dict[int, Present]) -> list[tuple[int, int]]:
        return [(gi, part.size) for gi, ci in self.cut for part in known[gi].compute if part.id == ci]

    def concerns(self, user: User) -> bool:
        """Return whether the change removes what a process uses."""
        if user.gpu != self.card.gpu.index:
            return False
        if self.switches:
            return user.computes or self.card.resets
        if user.gi is None:
            return False
        return user.gi in {instance.id for instance in self.destroy} or any(
            user.gi == gi and user.ci in (None, ci) for gi, ci in self.cut
        )


def plan_change(card: Card, target: mig_layout.Target, users: Collection[User] = ()) -> Change:
    """Compute the changes that bring a GPU to its target, moving nothing that is in use if possible."""
    if not card.gpu.capable:
        problem = f"{card.gpu.name} has no MIG" if target.enabled else ""
        return Change(card._replace(current=0, pending=0), False, problem=problem)
    if not target.enabled:
        return Change(card, False, destroy=card.instances)
    if not card.profiles or not card.profiles[0].starts:
        return Change(card, True, destroy=card.instances, blind=bool(target.instances))
    strange = [
        instance.profile for instance in target.instances if instance.profile not in {p.name for p in card.profiles}
    ]
    if strange:
        has = ", ".join(profile.name for profile in card.profiles)
        return Change(card, True, problem=f"{card.gpu.name} has no MIG profile {strange[0]}; it has: {has}")
    placed, reason = place_instances(card, target, users) if target.instances else ((), "")
    if reason:
        return Change(card, True, problem=reason)
    sizes = [list_sizes(card.slices(instance.profile), instance.compute) for instance in target.instances]
    return compare_card(card, [(place, sizes[n]) for n, place in enumerate(placed)], users)


def place_instances(
    card: Card, target: mig_layout.Target, users: Collection[User]
) -> tuple[Sequence[mig_fit.Placed], str]:
    """Return placements of the request that leave instances in use alone; if there are none, any placements; or the
    reason why there are none."""
    present = tuple(
        mig_layout.Instance(
            instance.profile, instance.start, () if instance.sizes == (instance.slices,) else instance.sizes
        )
        for instance in card.instances
    )
    used = {user.gi for user in users if user.gpu == card.gpu.index}
    busy = tuple(present[n] for n, instance in enumerate(card.instances) if instance.id in used)
    for fixed in (busy, ()):
        fit = _fit(card.profiles, card.grid, target.instances, present, fixed)
        if fit.placed:
            return fit.placed, ""
    instead = "; or ".join(mig_fit.format_profiles(profiles) for profiles in fit.instead)
    return (), fit.reason + (f"; what fits: {instead}" if instead else "")


@lru_cache(maxsize=1024)
def _fit(
    profiles: tuple[mig_fit.Profile, ...],
    grid: int,
    desired: tuple[mig_layout.Instance, ...],
    present: tuple[mig_layout.Instance, ...],
    busy: tuple[mig_layout.Instance, ...],
) -> mig_fit.Fit:
    """Cache one search for the many GPUs with the same request."""
    return mig_fit.fit(profiles, grid, desired, present, busy)


def compare_card(card: Card, aims: Sequence[tuple[mig_fit.Placed, tuple[int, ...]]], users: Collection[User]) -> Change:
    aim = {(place.profile, place.start): sizes for place, sizes in aims}
    present = {(instance.profile, instance.start): instance for instance in card.instances}
    cut, add = [], []
    for key in aim.keys() & present.keys():
        instance = present[key]
        used = {user.ci for user in users if (user.gpu, user.gi) == (card.gpu.index, instance.id)}
        keep = keep_instances(instance.slices, instance.compute, aim[key], used)
        more = subtract_sizes(aim[key], [c.size for c in instance.compute if c.id in keep])
        cut += [(instance.id, c.id) for c in instance.compute if c.id not in keep]
        add += [(instance.id, tuple(more))] if more else []
    size = {profile.name: profile.size for profile in card.profiles}
    new = sorted(
        ((place, sizes) for place, sizes in aims if (place.profile, place.start) not in present),
        key=lambda m: (-size[m[0].profile], m[0].start),
    )
    gone = tuple(placed for key, placed in present.items() if key not in aim)
    return Change(card, True, tuple(sorted(cut)), gone, tuple(new), tuple(sorted(add)))


def keep_instances(
    slices: int, compute: Sequence[Compute], desired: Sequence[int], used: Collection[int | None]
) -> frozenset[int]:
    """Return ids of as many compute instances as can stay beside the required ones, the used ones first."""
    ranked = sorted(compute, key=lambda part: (-part.size, part.start))
    some = [chosen for count in range(len(ranked) + 1) for chosen in itertools.combinations(ranked, count)]
    some.sort(key=lambda chosen: (-sum(part.id in used for part in chosen), -len(chosen)))
    for chosen in some:
        more = subtract_sizes(desired, [part.size for part in chosen])
        if len(more) == len(desired) - len(chosen) and has_room(slices, chosen, more):
            return frozenset(part.id for part in chosen)
    return frozenset()


def subtract_sizes(sizes: Sequence[int], less: Iterable[int]) -> list[int]:
    remaining = sorted(sizes, reverse=True)
    for size in less:
        if size in remaining:
            remaining.remove(size)
    return remaining


def has_room(slices: int, taken: Sequence[Compute], sizes: Sequence[int]) -> bool:
    """Return whether compute instances of these sizes fit: one starts at a multiple of the next power of two, as -lcipp
    shows."""
    if not sizes:
        return True
    size, rest = sizes[0], sizes[1:]
    for start in range(0, slices - size + 1, 1 << (size - 1).bit_length()):
        free = all(start + size <= part.start or part.start + part.size <= start for part in taken)
        if free and has_room(slices, [*taken, Compute(-1, start, size)], rest):
            return True
    return False
