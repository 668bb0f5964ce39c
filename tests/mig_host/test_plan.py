"""What of a GPU stays, goes and comes; nothing here touches an NVML."""

from __future__ import annotations

from typing import Any

from gpuprov.host_code.mig.layout import Instance, Target
from tests.mig_host.on_host import A100, H100, card, plan, present, user
from tests.rows import run_each

THREE, TWO, ONE = Instance("3g.40gb"), Instance("2g.20gb"), Instance("1g.10gb")


def change(of: Any, *instances: Instance, users: tuple[Any, ...] = (), enabled: bool = True) -> Any:
    return plan.plan_change(of, Target(enabled, instances), users)


def test_an_empty_gpu_gets_all_largest_first() -> None:
    made = change(card(on=False), ONE, THREE, TWO)
    steps = [line.partition(": ")[2].partition(" at ")[0] for line in made.steps()]
    assert steps == ["enable MIG mode", "create 3g.40gb", "create 2g.20gb", "create 1g.10gb"]


def test_what_matches_stays() -> None:
    there = card(H100, present(1, "3g.40gb", 0), present(9, "1g.10gb", 4))
    assert not change(there, ONE, THREE).anything
    made = change(there, TWO, THREE)
    assert [one.id for one in made.destroy] == [9]
    assert [place.profile for place, _ in made.create] == ["2g.20gb"]


def test_a_placement_that_is_asked_for_is_kept_to() -> None:
    made = change(card(H100, present(1, "3g.40gb", 0)), Instance("3g.40gb", 4))
    assert [one.id for one in made.destroy] == [1]
    assert [tuple(place) for place, _ in made.create] == [("3g.40gb", 4)]


def test_what_is_in_use_does_not_move() -> None:
    there = card(H100, present(7, "1g.10gb", 0), present(8, "1g.10gb", 5))
    made = change(there, ONE, THREE, users=(user(8, 0),))
    assert [one.id for one in made.destroy] == [7]
    assert [tuple(place) for place, _ in made.create] == [("3g.40gb", 0)]
    assert not made.concerns(user(8, 0))


def test_what_is_in_use_and_must_go_is_told() -> None:
    there = card(H100, present(7, "1g.10gb", 0), present(2, "3g.40gb", 4))
    made = change(there, Instance("7g.80gb"), users=(user(7, 0),))
    assert [one.id for one in made.destroy] == [7, 2]
    assert made.concerns(user(7, 0))
    assert not made.concerns(user(None))


@run_each(
    ("there", "wanted", "used", "cut", "add"),
    [
        ((1, 1, 1), (1, 1, 1), None, [], []),
        ((1, 1, 1), (2, 1), None, [0, 1], [2]),  # 2c starts at slice 0, so that only the last 1c can stay
        ((1, 1, 1), (2, 1), 2, [0, 1], [2]),
        ((1, 1), (1, 1, 1), 0, [], [1]),
        ((3,), (2, 1), None, [0], [2, 1]),
        ((2, 1), (3,), None, [0, 1], [3]),
    ],
)
def test_only_the_compute_instances_that_must_go(
    there: tuple[int, ...], wanted: tuple[int, ...], used: int | None, cut: list[int], add: list[int]
) -> None:
    using = () if used is None else (user(1, used),)
    made = change(card(H100, present(1, "3g.40gb", 0, *there)), Instance("3g.40gb", None, wanted), users=using)
    assert [ci for _, ci in made.cut] == cut
    assert [size for _, sizes in made.add for size in sizes] == add
    assert not made.destroy
    assert not any(made.concerns(one) for one in using)


def test_a_compute_instance_in_use_that_must_go_is_told() -> None:
    there = card(H100, present(1, "3g.40gb", 0, 1, 1, 1))
    made = change(there, THREE, users=(user(1, 1),))
    assert made.concerns(user(1, 1))
    assert made.concerns(user(1))


def test_instances_of_one_profile_keep_their_own_compute_instances() -> None:
    there = card(H100, present(1, "3g.40gb", 0), present(2, "3g.40gb", 4, 1, 1, 1))
    assert not change(there, Instance("3g.40gb", None, (1, 1, 1)), THREE).anything


def test_disabled_takes_all_instances_away_first() -> None:
    there = card(H100, present(1, "3g.40gb", 0))
    made = change(there, enabled=False)
    assert made.steps() == [
        "GPU 0 (0000:3b:00.0): destroy 3g.40gb at 0 (GPU instance 1)",
        "GPU 0 (0000:3b:00.0): disable MIG mode",
    ]
    assert made.concerns(user(1, 0))


def test_a_mode_change_concerns_whom_it_ends() -> None:
    """By a reset, on Ampere, also those that only have the GPU open."""
    watching = user(computes=False)
    assert not change(card(on=False), ONE).concerns(watching)
    assert change(card(on=False), ONE).concerns(user())
    ampere = change(card(A100, on=False, resets=True), ONE)
    assert ampere.concerns(watching)
    assert ampere.steps()[0].endswith("enable MIG mode by a reset")


def test_a_mode_that_is_only_pending_disturbs_nobody() -> None:
    half = card(A100, present(1, "3g.40gb", 0), resets=True)._replace(pending=0)
    made = change(half, THREE)
    assert made.mode
    assert made.steps() == ["GPU 0 (0000:3b:00.0): keep MIG mode enabled"]
    assert not made.concerns(user(1, 0))


def test_places_that_are_not_known_before_mig_is_on() -> None:
    made = change(card(on=False)._replace(profiles=()), ONE)
    assert made.blind
    assert made.steps()[1].endswith("create its instances")


@run_each(
    ("instances", "text"),
    [
        ((Instance("3g.20gb"),), "has no MIG profile 3g.20gb; it has: 1g.10gb"),
        ((THREE, THREE, ONE), "what fits: 2 x 3g.40gb"),
        ((Instance("3g.40gb", 2),), "3g.40gb"),
    ],
)
def test_what_cannot_be_says_why(instances: tuple[Instance, ...], text: str) -> None:
    made = change(card(), *instances)
    assert text in made.problem
    assert "\n" not in made.problem


def test_a_gpu_without_mig() -> None:
    assert change(card("T4"), ONE).problem == "T4 has no MIG"
    assert not change(card("T4", on=False), enabled=False).anything
