"""Placement of MIG instances on a GPU. Standard library only, Python 3.8: hosts have this file too.

A GPU instance takes `size` memory slices in a row, from one of the `starts` that the driver allows. Therefore a search
over placements decides whether a set of instances fits, not the sum of slices: two 3g fill a GPU of seven slices.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

# The compute instances that a GPU instance of so many slices takes. Their sizes may add up to its slices, no more.
# https://github.com/NVIDIA/mig-parted/blob/main/pkg/mig/config/known_configs.go; -lcip of an A100 with 3g and 4g agrees
COMPUTE_SIZES = {1: (1,), 2: (1, 2), 3: (1, 2, 3), 4: (1, 2, 4), 7: (1, 2, 3, 4, 7)}
# +me.all takes every media engine; beside it only instances without any are left. -lgip of an RTX PRO 6000: 4 of 4
ALL_MEDIA, NO_MEDIA = "+me.all", "-me"


class Profile(NamedTuple):
    """A profile: compute `slices`, `size` and `starts` in memory slices; `media`: only one with this fits on a GPU."""

    name: str
    slices: int
    size: int
    starts: tuple[int, ...]
    max_count: int
    media: bool = False


class Placed(NamedTuple):
    """A GPU instance and the memory slice where it starts."""

    profile: str
    start: int


class Fit(NamedTuple):
    """`placed`: in the order of the request; `order`: their indexes, in the order in which to create them.

    If they do not fit, `placed` is empty, `reason` is one line, and `instead` has the nearest sets of profiles that do.
    """

    placed: tuple[Placed, ...]
    reason: str = ""
    instead: tuple[tuple[str, ...], ...] = ()
    order: tuple[int, ...] = ()


def fit(
    profiles: Sequence[Profile],
    grid: int,
    target: Sequence[Any],
    present: Sequence[Any] = (),
    fixed: Sequence[Any] = (),
) -> Fit:
    """Place the requested instances (mig_layout.Instance) on a GPU with `grid` memory slices.

    Instances that are `fixed` stay: each is the requested one of its profile (and compute instances, if it has them),
    or else its slices are taken. Of the `present` (Placed, or Instance) as many stay as possible. Then: room for more.
    """
    known = {profile.name: profile for profile in profiles}
    reason = explain_single(known, target)
    if reason:
        return Fit((), reason)
    reason = count_reason(known, target)
    starts = None if reason else _search(known, grid, target, present, fixed)
    if starts is None:
        reason = reason or explain_slices(known, grid, target) or explain_placing(known, grid, target, fixed)
        return Fit((), reason, find_nearest(known, grid, target, fixed) if known else ())
    placed = tuple(Placed(item.profile, starts[n]) for n, item in enumerate(target))
    order = sorted(range(len(placed)), key=lambda n: (-known[placed[n].profile].size, placed[n].start))
    return Fit(placed, "", (), tuple(order))


def list_layouts(profiles: Sequence[Profile], grid: int) -> list[tuple[Placed, ...]]:
    """Return every set of instances to which none can be added, each with one placement; fewest instances first."""
    names = [profile.name for profile in sorted(profiles, key=lambda p: (-p.slices, -p.size, p.name))]
    known = {profile.name: profile for profile in profiles}
    sets = list_sets([known[name] for name in names], grid)

    def grows(counts: tuple[int, ...]) -> bool:
        return any(counts[:n] + (counts[n] + 1,) + counts[n + 1 :] in sets for n in range(len(names)))

    maximal = [(counts, places) for counts, places in sets.items() if any(counts) and not grows(counts)]
    maximal.sort(key=lambda item: (sum(item[0]), [-count for count in item[0]]))
    return [tuple(Placed(names[n], start) for start, n in sorted(places)) for _, places in maximal]


def format_profiles(profiles: Iterable[str]) -> str:
    """Describe a set of profiles: "3g.40gb, 2 x 1g.10gb"."""
    return ", ".join(f"{count} x {name}" if count > 1 else name for name, count in Counter(profiles).items())


def list_sets(profiles: Sequence[Profile], grid: int) -> dict[tuple[int, ...], tuple[tuple[int, int], ...]]:
    """Return every set that fits, as counts per profile, with one placement: (start, index of the profile)."""
    none = (0,) * len(profiles)
    after: list[dict[tuple[int, ...], tuple[tuple[int, int], ...]]] = [{} for _ in range(grid)] + [{none: ()}]
    for slice_ in reversed(range(grid)):
        options = after[slice_]
        for n, profile in enumerate(profiles):
            if slice_ in profile.starts and slice_ + profile.size <= grid:
                for counts, places in after[slice_ + profile.size].items():
                    more = counts[:n] + (counts[n] + 1,) + counts[n + 1 :]
                    if more not in options and is_allowed(profiles, more):
                        options[more] = ((slice_, n), *places)
        for counts, places in after[slice_ + 1].items():
            options.setdefault(counts, places)
    return after[0]


def is_allowed(profiles: Sequence[Profile], counts: Sequence[int]) -> bool:
    """Return whether this many of each profile are allowed, wherever they are."""
    used = [(profile, counts[n]) for n, profile in enumerate(profiles) if counts[n]]
    one_media = sum(count for profile, count in used if profile.media) <= 1
    return one_media and all(count <= p.max_count for p, count in used) and not _all_media(p.name for p, _ in used)


def _all_media(names: Iterable[str]) -> list[str]:
    """Return the profiles that conflict with one that takes all media engines."""
    ordered = sorted(names, key=lambda name: not name.endswith(ALL_MEDIA))
    return [name for name in ordered if ordered[0].endswith(ALL_MEDIA) and not name.endswith((ALL_MEDIA, NO_MEDIA))]


def _search(
    known: Mapping[str, Profile], grid: int, target: Sequence[Any], present: Sequence[Any], fixed: Sequence[Any]
) -> tuple[int, ...] | None:
    """Return the best start of each requested instance, the first of equally good ones; None if there is none."""
    stays = {(item.profile, item.start): getattr(item, "compute", None) for item in fixed}
    existing = {**{(item.profile, item.start): getattr(item, "compute", None) for item in present}, **stays}
    best: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    for starts in list_placements(known, grid, target, stays):
        placed = [(item.profile, starts[n]) for n, item in enumerate(target)]
        displaced = [place for place in stays if place not in placed]
        names = Counter(name for name, _ in [*placed, *displaced] if name in known)
        if displaced and not is_allowed([known[name] for name in names], list(names.values())):
            continue
        taken = sum(_mask(known, place) for place in [*placed, *displaced])
        exact = [place for n, place in enumerate(placed) if existing.get(place) == target[n].compute]
        score = (
            sum(place in stays for place in placed),
            sum(place in stays for place in exact),
            sum(place in existing for place in placed),
            len(exact),
            sum(p.slices for p in known.values() for start in p.starts if not taken & _mask(known, (p.name, start))),
        )
        if best is None or score > best[0]:
            best = (score, starts)
    return best[1] if best else None


def _mask(known: Mapping[str, Profile], place: tuple[str, int | None]) -> int:
    return ((1 << known[place[0]].size) - 1) << (place[1] or 0) if place[0] in known else 0


def list_placements(
    known: Mapping[str, Profile], grid: int, target: Sequence[Any], stays: Mapping[tuple[str, int | None], Any]
) -> Iterator[tuple[int, ...]]:
    """Yield every way to place the requested instances without overlap; identical ones in one order only."""
    blocked = sum(_mask(known, kept) for kept in stays)
    kinds = [(item.profile, -1 if item.start is None else item.start, item.compute) for item in target]
    todo = sorted(range(len(target)), key=lambda n: (-known[target[n].profile].size, kinds[n], n))
    starts = [-1] * len(target)

    def place(at: int, taken: int) -> Iterator[tuple[int, ...]]:
        if at == len(todo):
            yield tuple(starts)
            return
        n, item, profile = todo[at], target[todo[at]], known[target[todo[at]].profile]
        alike = at > 0 and kinds[todo[at - 1]] == kinds[n]
        for start in profile.starts:
            mask = _mask(known, (profile.name, start))
            free = (profile.name, start) in stays or not mask & blocked
            turn = item.start in (None, start) and not (alike and start < starts[todo[at - 1]])
            if free and turn and not mask & taken and mask < 1 << grid:
                starts[n] = start
                yield from place(at + 1, taken | mask)

    yield from place(0, 0)


def explain_single(known: Mapping[str, Profile], target: Sequence[Any]) -> str:
    """Return the problem with a single instance, apart from its profile's name."""
    for item in target:
        slices, starts = (known[item.profile].slices, known[item.profile].starts) if item.profile in known else (0, ())
        sizes = COMPUTE_SIZES.get(slices, tuple(range(1, slices + 1)))
        odd = [size for size in item.compute if slices and size not in sizes]
        if odd:
            allowed = ", ".join(f"{size}c" for size in sizes)
            return f"{item.profile} has no compute instance of {odd[0]} slices; it has {allowed}"
        if slices and sum(item.compute) > slices:
            parts = " + ".join(f"{size}c" for size in item.compute)
            return f"{parts} is {sum(item.compute)} compute slices; {item.profile} has {slices}"
        if starts and item.start is not None and item.start not in starts:
            return f"{item.profile} cannot start at memory slice {item.start}; it starts at {join_starts(starts)}"
    return ""


def count_reason(known: Mapping[str, Profile], target: Sequence[Any]) -> str:
    """Return why the instances are impossible wherever they are: names, counts, media; "" if these do not decide."""
    counts = Counter(item.profile for item in target)
    for name, count in counts.items():
        if name not in known:
            return f"there is no profile {name} on this GPU; there are {', '.join(known)}"
        if count > known[name].max_count:
            return f"{count} x {name}: the GPU takes at most {known[name].max_count}"
    media = [name for name in counts.elements() if known[name].media]
    if len(media) > 1:
        return f"{format_profiles(media)}: one instance of a GPU has the media extensions"
    if others := format_profiles(_all_media(counts)):
        return f"{media[0]} takes all media engines; beside it are {NO_MEDIA} profiles only, not {others}"
    return ""


def explain_slices(known: Mapping[str, Profile], grid: int, target: Sequence[Any]) -> str:
    """Return which kind of slices there are too few of; "" if none."""
    counts = Counter(item.profile for item in target)
    limits = (("memory", grid), ("compute", max(profile.slices for profile in known.values())))
    for n, (kind, limit) in enumerate(limits):
        needed = {name: count * (known[name].size, known[name].slices)[n] for name, count in counts.items()}
        if sum(needed.values()) > limit:
            parts = ", ".join(f"{format_profiles([name] * counts[name])}: {part}" for name, part in needed.items())
            return f"{sum(needed.values())} {kind} slices are needed ({parts}); the GPU has {limit}"
    return ""


def explain_placing(known: Mapping[str, Profile], grid: int, target: Sequence[Any], fixed: Sequence[Any]) -> str:
    """Return why they cannot be placed: the fewest that have no placement, and the allowed starts of each."""
    core, places = list(target), []
    for n in reversed(range(len(target))):
        if _search(known, grid, core[:n] + core[n + 1 :], (), fixed) is None:
            del core[n]
    for item in {(item.profile, item.start): item for item in core}.values():
        starts = join_starts(known[item.profile].starts) if item.start is None else f"{item.start}, where it is wanted"
        places.append(f"{item.profile} takes {known[item.profile].size} memory slices from {starts}")
    places += [f"{item.profile} at {item.start} is in use and stays" for item in fixed]
    return f"{format_profiles(item.profile for item in core)} cannot be placed: {'; '.join(places)}"


def join_starts(starts: Sequence[int]) -> str:
    *first, last = map(str, starts)
    return f"{', '.join(first)} or {last}" if first else last


def find_nearest(
    known: Mapping[str, Profile], grid: int, target: Sequence[Any], fixed: Sequence[Any]
) -> tuple[tuple[str, ...], ...]:
    """Return sets that fit: the request without the fewest of them, and as many with the fewest made smaller."""
    like = Counter(find_similar(known, item.profile) for item in target)
    kinds = {_kind_of(name) for name in like} | {""}
    limit = weigh(known, like)
    fewer, smaller = [], []
    for counts in list_sets(list(known.values()), grid):
        trial = Counter({name: counts[n] for n, name in enumerate(known) if counts[n]})
        count, *slices = weigh(known, trial)
        score = sum((trial & like).values()), slices
        if not trial - like:
            fewer.append((score, trial))
        elif count == limit[0] and all(slices[n] <= limit[n + 1] for n in (0, 1)) and {*map(_kind_of, trial)} <= kinds:
            smaller.append((score, trial))
    result: list[Counter[str]] = []
    for sets, most in ((fewer, 1), (smaller, 2), (fewer, 3)):
        for _, trial in sorted(sets, key=lambda item: item[0], reverse=True):
            new = trial and all(trial - other for other in result) and result[:1] != [like]
            free = [_Free(name) for name in trial.elements()]
            if new and len(result) < most and _search(known, grid, free, (), fixed) is not None:
                result.append(trial)
    largest = {name: (-profile.size, -profile.slices, name) for name, profile in known.items()}
    return tuple(tuple(sorted(counter.elements(), key=largest.__getitem__)) for counter in result)


def weigh(known: Mapping[str, Profile], names: Counter[str]) -> tuple[int, int, int]:
    """Return the number of instances, their compute slices and their memory slices."""
    each = [known[name] for name in names.elements()]
    return len(each), sum(profile.slices for profile in each), sum(profile.size for profile in each)


class _Free(NamedTuple):
    profile: str
    start: int | None = None
    compute: tuple[int, ...] = ()


def _kind_of(name: str) -> str:
    """Return the attributes in a profile's name: "+me"."""
    return name[name.find("gb") + 2 :]


def find_similar(known: Mapping[str, Profile], name: str) -> str:
    """Return the name, or the most similar profile here: in slices, then attributes, then memory."""

    def numbers(text: str) -> list[int]:
        return [*map(int, re.findall(r"\d+", text)), 0, 0]

    def far(profile: Profile) -> tuple[int, bool, int]:
        memory = abs(numbers(profile.name)[1] - numbers(name)[1])
        return abs(profile.slices - numbers(name)[0]), _kind_of(profile.name) != _kind_of(name), memory

    return name if name in known else min(known.values(), key=far).name
