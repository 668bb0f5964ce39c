"""The search for places: against every possibility tried one by one, and what it keeps, prefers and refuses."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from itertools import combinations_with_replacement, product

from gpuprov.catalog import mig
from gpuprov.catalog.gpus import list_gpus
from gpuprov.hardware.mig import Model, find, model_of
from gpuprov.host_code.mig.fit import Fit, Placed, Profile, fit, format_profiles, list_layouts
from gpuprov.host_code.mig.layout import Instance
from tests.rows import run_each

A100 = find("A100-SXM4-80GB")
PRO = find("RTX-PRO-6000-SE")
A30 = find("A30")


def ask(
    *wanted: str | Instance, model: Model = A100, present: Sequence[Placed] = (), fixed: Sequence[Placed] = ()
) -> Fit:
    instances = [one if isinstance(one, Instance) else Instance(one) for one in wanted]
    return fit(model.profiles, model.grid or 0, instances, present, fixed)


def naive(profiles: Sequence[Profile], grid: int, wanted: Sequence[Instance], fixed: Sequence[Placed] = ()) -> bool:
    """Every combination of starts, one by one."""
    known = {profile.name: profile for profile in profiles}
    counts = Counter(one.profile for one in wanted)
    for starts in product(*(known[one.profile].starts for one in wanted)):
        mine = [(one.profile, start) for one, start in zip(wanted, starts, strict=True)]
        places = mine + [(name, start) for name, start in fixed if (name, start) not in mine]
        slices = [n for name, start in places for n in range(start, start + known[name].size)]
        names = [name for name, _ in places]
        if (
            len(slices) == len(set(slices))
            and max(slices, default=0) < grid
            and all(one.start in (None, start) for one, start in zip(wanted, starts, strict=True))
            and all(count <= known[name].max_count for name, count in Counter(names).items())
            and sum(known[name].media for name in names) <= 1
            and not ("x+me.all" in names and [name for name in names if name[-3:] not in ("all", "-me")])
            and counts.total() == len(mine)
        ):
            return True
    return False


def some_profiles(chance: random.Random, grid: int) -> list[Profile]:
    found = []
    for name in chance.sample(("a", "b", "c", "d+me", "x+me.all", "y-me"), 4):
        size = chance.randint(1, 4)
        starts = tuple(sorted(chance.sample(range(grid), chance.randint(1, 3))))
        found.append(Profile(name, 1, size, starts, chance.randint(1, 3), name.endswith(("+me", "+me.all"))))
    return found


@run_each("seed", range(60))
def test_the_search_is_exact(seed: int) -> None:
    chance = random.Random(seed)
    grid = chance.randint(3, 6)
    profiles = some_profiles(chance, grid)
    for _ in range(12):
        wanted = [Instance(chance.choice(profiles).name) for _ in range(chance.randint(1, 4))]
        if chance.random() < 0.3:
            wanted[0] = Instance(wanted[0].profile, chance.randrange(grid))
        fixed = []
        one = chance.choice(profiles)
        if chance.random() < 0.4 and one.starts[0] + one.size <= grid:
            fixed = [Placed(one.name, one.starts[0])]
        found = fit(profiles, grid, wanted, (), fixed)
        assert (not found.reason) is naive(profiles, grid, wanted, fixed), (profiles, wanted, fixed)
        for instead in found.instead:
            assert naive(profiles, grid, [Instance(name) for name in instead], fixed)


@run_each("seed", range(10))
def test_layouts_are_all_the_maximal_ones(seed: int) -> None:
    chance = random.Random(seed)
    grid = chance.randint(3, 5)
    profiles = some_profiles(chance, grid)
    names = [profile.name for profile in profiles]
    sets = [
        tuple(sorted(one))
        for count in range(1, grid + 1)
        for one in combinations_with_replacement(names, count)
        if naive(profiles, grid, [Instance(name) for name in one])
    ]
    maximal = {
        one for one in sets if not any(len(other) > len(one) and not Counter(one) - Counter(other) for other in sets)
    }
    found = list_layouts(profiles, grid)
    assert {tuple(sorted(one.profile for one in layout)) for layout in found} == maximal
    assert len(found) == len(maximal)
    for layout in found:
        assert naive(profiles, grid, [Instance(one.profile, one.start) for one in layout])


# `nvidia-smi mig -lgipp`, as ID:starts:size: A100 in the MIG guide (getting started), A30 with 535.183.01, an H100 of
# 2024-12, and an RTX PRO 6000 Blackwell Server Edition.
CAPTURES = {
    "A100-SXM4-40GB": "19:0123456:1 20:0123456:1 15:0246:2 14:024:2 9:04:4 5:0:4 0:0:8",
    "A30": "14:0123:1 21:0123:1 5:02:2 6:02:2 0:0:4",
    "H100-SXM5-80GB": "19:0123456:1 20:0123456:1 15:0246:2 14:024:2 9:04:4 5:0:4 0:0:8",
    "RTX-PRO-6000-SE": "14:0369:3 21:0369:3 47:0369:3 65:0369:3 67:0369:3 5:06:6 35:06:6 64:06:6 66:06:6 0:0:12 "
    "32:0:12",
}


@run_each(("key", "capture"), CAPTURES.items())
def test_layouts_agree_with_what_drivers_print(key: str, capture: str) -> None:
    printed = {}
    for row in capture.split():
        identity, starts, size = row.split(":")
        printed[int(identity)] = (tuple(map(int, starts)), int(size))
    model = find(key)
    numbers = {profile.name: profile.nvsmi_id for profile in mig.list_profiles(model.gpu)}
    assert {numbers[one.name]: (one.starts, one.size) for one in model.profiles} == printed
    assert model.sure == "confirmed"
    for layout in list_layouts(model.profiles, model.grid or 0):
        slices: list[int] = []
        for one in layout:
            number = numbers[one.profile]
            assert number is not None
            starts_, size_ = printed[number]
            assert one.start in starts_
            slices += range(one.start, one.start + size_)
        assert len(slices) == len(set(slices))
        assert max(slices) < (model.grid or 0)


def test_starts_leave_no_layout_with_more_compute_slices_than_there_are() -> None:
    models = {one.mig.profile_class: model_of(one) for one in list_gpus() if model_of(one).grid}
    for model in models.values():
        slices = {profile.name: profile.slices for profile in model.profiles}
        for layout in list_layouts(model.profiles, model.grid or 0):
            assert sum(slices[one.profile] for one in layout) <= max(slices.values())


def test_a_table_without_the_largest_profile_decides_by_places() -> None:
    few = [profile for profile in A100.profiles if profile.slices < 4]
    assert not fit(few, 8, [Instance("3g.40gb"), Instance("2g.20gb"), Instance("1g.10gb")]).reason


def test_without_instances() -> None:
    assert ask() == Fit(())
    assert fit((), 8, []) == Fit(())
    assert list_layouts((), 8) == []


def test_placed_in_the_order_asked_and_created_largest_first() -> None:
    found = ask("1g.10gb", "3g.40gb", "1g.10gb", "2g.20gb")
    assert found.placed == (("1g.10gb", 2), ("3g.40gb", 4), ("1g.10gb", 3), ("2g.20gb", 0))
    assert [found.placed[n].profile for n in found.order] == ["3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"]


@run_each(
    ("wanted", "places"),
    [
        (["1g.10gb"], [6]),  # leaves 4g at 0 and 2g at 4
        (["3g.40gb"], [4]),  # leaves 4g at 0
        (["2g.20gb"], [4]),
        (["1g.20gb"], [6]),
    ],
)
def test_what_is_left_is_as_useful_as_can_be(wanted: list[str], places: list[int]) -> None:
    assert [one.start for one in ask(*wanted).placed] == places


def test_present_instances_stay() -> None:
    present = [Placed("3g.40gb", 0), Placed("1g.10gb", 4), Placed("2g.20gb", 6)]
    found = ask("3g.40gb", "1g.10gb", "1g.10gb", present=present)
    assert found.placed == (("3g.40gb", 0), ("1g.10gb", 4), ("1g.10gb", 5))
    assert ask("4g.40gb", "3g.40gb", present=present).placed == (("4g.40gb", 0), ("3g.40gb", 4))


def test_the_instance_with_the_same_compute_instances_stays() -> None:
    present = [Instance("3g.40gb", 0, (1, 1, 1)), Instance("3g.40gb", 4)]
    wanted = [Instance("3g.40gb"), Instance("3g.40gb", None, (1, 1, 1))]
    found = fit(A100.profiles, 8, wanted, present)
    assert [one.start for one in found.placed] == [4, 0]
    assert [one.start for one in fit(A100.profiles, 8, wanted, (), present).placed] == [4, 0]


def test_instances_in_use_do_not_move() -> None:
    assert ask("3g.40gb", "1g.10gb", fixed=[Placed("1g.10gb", 5)]).placed == (("3g.40gb", 0), ("1g.10gb", 5))
    found = ask("4g.40gb", "1g.10gb", fixed=[Placed("1g.10gb", 0)])
    assert found.reason == (
        "4g.40gb cannot be placed: 4g.40gb takes 4 memory slices from 0; 1g.10gb at 0 is in use and stays"
    )
    assert found.instead[0] == ("1g.10gb",)
    # One that is not wanted takes its slices, and counts.
    assert ask("2g.20gb", "2g.20gb", "2g.20gb", fixed=[Placed("1g.10gb", 6)]).reason == ""
    assert "is in use and stays" in ask("2g.20gb", "2g.20gb", "2g.20gb", fixed=[Placed("1g.10gb", 3)]).reason
    assert "is in use and stays" in ask("1g.6gb+me", model=A30, fixed=[Placed("2g.12gb+me", 0)]).reason
    assert ask("1g.6gb+me", model=A30, fixed=[Placed("1g.6gb+me", 2)]).placed == (("1g.6gb+me", 2),)


REFUSED = [
    (A100, ["3g.40gb"] * 3, "3 x 3g.40gb: the GPU takes at most 2", "2 x 3g.40gb | 3g.40gb, 2 x 2g.20gb"),
    (
        A100,
        ["3g.40gb", "3g.40gb", "1g.10gb"],
        "9 memory slices are needed (2 x 3g.40gb: 8, 1g.10gb: 1); the GPU has 8",
        "2 x 3g.40gb | 3g.40gb, 2g.20gb, 1g.10gb",
    ),
    (
        A100,
        ["2g.20gb"] * 3 + ["1g.10gb"] * 2,
        "8 compute slices are needed (3 x 2g.20gb: 6, 2 x 1g.10gb: 2); the GPU has 7",
        "3 x 2g.20gb, 1g.10gb | 2 x 2g.20gb, 1g.20gb, 2 x 1g.10gb",
    ),
    (
        A100,
        ["7g.80gb", "1g.10gb"],
        "9 memory slices are needed (7g.80gb: 8, 1g.10gb: 1); the GPU has 8",
        "7g.80gb | 4g.40gb, 1g.10gb",
    ),
    (A100, ["1g.10gb+me"] * 2, "2 x 1g.10gb+me: the GPU takes at most 1", "1g.10gb+me | 1g.10gb, 1g.10gb+me"),
    (
        A30,
        ["1g.6gb+me", "2g.12gb+me"],
        "1g.6gb+me, 2g.12gb+me: one instance of a GPU has the media extensions",
        "2g.12gb+me | 2g.12gb+me, 1g.6gb | 1g.6gb+me",
    ),
    (
        PRO,
        ["1g.24gb+me.all", "1g.24gb", "1g.24gb-me"],
        "1g.24gb+me.all takes all media engines; beside it are -me profiles only, not 1g.24gb",
        "1g.24gb, 1g.24gb-me | 2 x 1g.24gb, 1g.24gb-me | 1g.24gb+me.all, 1g.24gb-me",
    ),
    (
        A100,
        ["3g.20gb", "1g.5gb+me"],
        "there is no profile 3g.20gb on this GPU; there are 1g.10gb, 1g.10gb+me, 1g.20gb, 2g.20gb, 3g.40gb, "
        "4g.40gb, 7g.80gb",
        "3g.40gb, 1g.10gb+me",
    ),
    (A100, [Instance("3g.40gb", 2)], "3g.40gb cannot start at memory slice 2; it starts at 0 or 4", ""),
    (
        A100,
        [Instance("3g.40gb", 0), "4g.40gb"],
        "3g.40gb, 4g.40gb cannot be placed: 3g.40gb takes 4 memory slices from 0, where it is wanted; "
        "4g.40gb takes 4 memory slices from 0",
        "4g.40gb, 3g.40gb",
    ),
    (
        A100,
        ["4g.40gb", "1g.10gb", Instance("2g.20gb", 2)],
        "4g.40gb, 2g.20gb cannot be placed: 4g.40gb takes 4 memory slices from 0; "
        "2g.20gb takes 2 memory slices from 2, where it is wanted",
        "4g.40gb, 2g.20gb, 1g.10gb",
    ),
    (A100, [Instance("4g.40gb", None, (3,))], "4g.40gb has no compute instance of 3 slices; it has 1c, 2c, 4c", ""),
    (A100, [Instance("3g.40gb", None, (2, 2))], "2c + 2c is 4 compute slices; 3g.40gb has 3", ""),
]


@run_each(("model", "wanted", "reason", "instead"), REFUSED)
def test_why_not_and_what_instead(model: Model, wanted: list[str | Instance], reason: str, instead: str) -> None:
    found = ask(*wanted, model=model)
    assert (found.placed, found.order) == ((), ())
    assert (found.reason, " | ".join(map(format_profiles, found.instead))) == (reason, instead)
    for one in found.instead:
        assert not ask(*one, model=model).reason


@run_each(
    ("profile", "compute", "good"),
    [
        ("1g.10gb", (1,), True),
        ("2g.20gb", (1, 1), True),
        ("3g.40gb", (2, 1), True),
        ("4g.40gb", (2, 2), True),
        ("4g.40gb", (2, 1), True),
        ("4g.40gb", (3, 1), False),
        ("7g.80gb", (3, 3, 1), True),
        ("7g.80gb", (4, 3), True),
        ("7g.80gb", (2, 2, 2, 1), True),
        ("7g.80gb", (5,), False),
        ("7g.80gb", (4, 4), False),
    ],
)
def test_compute_instances(profile: str, compute: tuple[int, ...], good: bool) -> None:
    assert (not ask(Instance(profile, None, compute)).reason) is good
