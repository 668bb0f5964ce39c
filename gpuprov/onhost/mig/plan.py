"""From what a GPU is to what it should be: which instances stay, go and come. Pure."""

from __future__ import annotations

import itertools
from functools import lru_cache
from typing import Collection, Iterable, NamedTuple, Sequence

from . import fit as mig_fit
from . import layout as mig_layout
from .state import Card, Compute, Present, User, named, sizes_of


class Change(NamedTuple):
    """What one GPU needs, in the order in which it is done: `cut` compute instances, `destroy`, mode, `create`, `add`.

    `cut`: (GPU instance, compute instance). `create`: with the sizes of compute instances. `add`: sizes of further compute
    instances of a GPU instance that stays. `problem`: why it cannot be. `blind`: places are not known before MIG is on.
    """

    card: Card
    enabled: bool
    cut: tuple[tuple[int, int], ...] = ()
    destroy: tuple[Present, ...] = ()
    create: tuple[tuple[mig_fit.Placed, tuple[int, ...]], ...] = ()
    add: tuple[tuple[int, tuple[int, ...]], ...] = ()
    problem: str = ""
    blind: bool = False

    @property
    def mode(self) -> bool:
        """Whether the MIG mode changes."""
        return (self.card.current, self.card.pending) != (int(self.enabled), int(self.enabled))

    @property
    def switches(self) -> bool:
        """Whether it changes in force, and not only what is pending."""
        return self.card.current != int(self.enabled)

    @property
    def anything(self) -> bool:
        return bool(self.mode or self.cut or self.destroy or self.create or self.add)

    def recut(self) -> list[tuple[Present, tuple[int, ...]]]:
        """GPU instances that stay, each with the sizes that its compute instances will have, largest first."""
        gone, more = set(self.cut), dict(self.add)
        found = []
        for one in self.card.instances:
            left = [part.size for part in one.compute if (one.id, part.id) not in gone]
            if len(left) < len(one.compute) or one.id in more:
                found.append((one, tuple(sorted((*left, *more.get(one.id, ())), reverse=True))))
        return found

    def steps(self) -> list[str]:
        """For people: what is done, one a line."""
        known = {one.id: one for one in self.card.instances}
        said = [f"destroy {size}c of {known[gi]}" for gi, size in self._cut_sizes(known)]
        said += [f"destroy {one}" for one in self.destroy]
        said += [self._mode()] * self.mode
        said += [
            f"create {named(at.profile, at.start, self.card.slices(at.profile), sizes)}" for at, sizes in self.create
        ]
        said += ["create its instances"] * self.blind
        said += [f"create {size}c in {known[gi]}" for gi, sizes in self.add for size in sizes]
        return [f"{self.card}: {line}" for line in said]

    def _mode(self) -> str:
        if not self.switches:
            return f"keep MIG mode {'enabled' if self.enabled else 'disabled'}"
        return f"{'enable' if self.enabled else 'disable'} MIG mode{' by a reset' if self.card.resets else ''}"

    def _cut_sizes(self, known: dict[int, Present]) -> list[tuple[int, int]]:
        return [(gi, one.size) for gi, ci in self.cut for one in known[gi].compute if one.id == ci]

    def concerns(self, user: User) -> bool:
        """Whether it takes away what a process uses."""
        if user.gpu != self.card.gpu.index:
            return False
        if self.switches:
            return user.computes or self.card.resets
        if user.gi is None:
            return False
        return user.gi in {one.id for one in self.destroy} or any(
            user.gi == gi and user.ci in (None, ci) for gi, ci in self.cut
        )


def change(card: Card, target: mig_layout.Target, users: Collection[User] = ()) -> Change:
    """What a GPU needs to become its target, moving nothing that is in use where that can be."""
    if not card.gpu.capable:
        problem = f"{card.gpu.name} has no MIG" if target.enabled else ""
        return Change(card._replace(current=0, pending=0), False, problem=problem)
    if not target.enabled:
        return Change(card, False, destroy=card.instances)
    if not card.profiles or not card.profiles[0].starts:
        return Change(card, True, destroy=card.instances, blind=bool(target.instances))
    strange = [one.profile for one in target.instances if one.profile not in {p.name for p in card.profiles}]
    if strange:
        has = ", ".join(one.name for one in card.profiles)
        return Change(card, True, problem=f"{card.gpu.name} has no MIG profile {strange[0]}; it has: {has}")
    placed, reason = _place(card, target, users) if target.instances else ((), "")
    if reason:
        return Change(card, True, problem=reason)
    sizes = [sizes_of(card.slices(one.profile), one.compute) for one in target.instances]
    return _difference(card, [(place, sizes[n]) for n, place in enumerate(placed)], users)


def _place(card: Card, target: mig_layout.Target, users: Collection[User]) -> tuple[Sequence[mig_fit.Placed], str]:
    """Places for what is wanted that leave instances in use alone; places at all; or why there are none."""
    there = tuple(
        mig_layout.Instance(one.profile, one.start, () if one.sizes == (one.slices,) else one.sizes)
        for one in card.instances
    )
    used = {user.gi for user in users if user.gpu == card.gpu.index}
    busy = tuple(there[n] for n, one in enumerate(card.instances) if one.id in used)
    for fixed in (busy, ()):
        fit = _fit(card.profiles, card.grid, target.instances, there, fixed)
        if fit.placed:
            return fit.placed, ""
    instead = "; or ".join(mig_fit.named(one) for one in fit.instead)
    return (), fit.reason + (f"; what fits: {instead}" if instead else "")


@lru_cache(maxsize=1024)
def _fit(
    profiles: tuple[mig_fit.Profile, ...],
    grid: int,
    wanted: tuple[mig_layout.Instance, ...],
    there: tuple[mig_layout.Instance, ...],
    busy: tuple[mig_layout.Instance, ...],
) -> mig_fit.Fit:
    """One search for the many GPUs that ask the same."""
    return mig_fit.fit(profiles, grid, wanted, there, busy)


def _difference(card: Card, aims: Sequence[tuple[mig_fit.Placed, tuple[int, ...]]], users: Collection[User]) -> Change:
    aim = {(place.profile, place.start): sizes for place, sizes in aims}
    there = {(one.profile, one.start): one for one in card.instances}
    cut, add = [], []
    for key in aim.keys() & there.keys():
        one = there[key]
        used = {user.ci for user in users if (user.gpu, user.gi) == (card.gpu.index, one.id)}
        keep = kept(one.slices, one.compute, aim[key], used)
        more = _without(aim[key], [c.size for c in one.compute if c.id in keep])
        cut += [(one.id, c.id) for c in one.compute if c.id not in keep]
        add += [(one.id, tuple(more))] if more else []
    size = {one.name: one.size for one in card.profiles}
    new = sorted(
        ((place, sizes) for place, sizes in aims if (place.profile, place.start) not in there),
        key=lambda m: (-size[m[0].profile], m[0].start),
    )
    gone = tuple(one for key, one in there.items() if key not in aim)
    return Change(card, True, tuple(sorted(cut)), gone, tuple(new), tuple(sorted(add)))


def kept(
    slices: int, compute: Sequence[Compute], wanted: Sequence[int], used: Collection[int | None]
) -> frozenset[int]:
    """Ids of as many compute instances as can stay beside those that must come, the used ones first."""
    ranked = sorted(compute, key=lambda one: (-one.size, one.start))
    some = [chosen for count in range(len(ranked) + 1) for chosen in itertools.combinations(ranked, count)]
    some.sort(key=lambda chosen: (-sum(one.id in used for one in chosen), -len(chosen)))
    for chosen in some:
        more = _without(wanted, [one.size for one in chosen])
        if len(more) == len(wanted) - len(chosen) and _room(slices, chosen, more):
            return frozenset(one.id for one in chosen)
    return frozenset()


def _without(sizes: Sequence[int], less: Iterable[int]) -> list[int]:
    left = sorted(sizes, reverse=True)
    for size in less:
        if size in left:
            left.remove(size)
    return left


def _room(slices: int, taken: Sequence[Compute], sizes: Sequence[int]) -> bool:
    """Whether compute instances of these sizes have places: one starts at a multiple of the next power of two, as -lcipp shows."""
    if not sizes:
        return True
    size, rest = sizes[0], sizes[1:]
    for start in range(0, slices - size + 1, 1 << (size - 1).bit_length()):
        free = all(start + size <= one.start or one.start + one.size <= start for one in taken)
        if free and _room(slices, [*taken, Compute(-1, start, size)], rest):
            return True
    return False
