"""Who is tested with whom, and when."""

from __future__ import annotations

from gpuprov.accept.model import GROUP, Pairing
from gpuprov.accept.pairs import plan_rounds, split_rounds
from tests.rows import run_each


def names(count: int) -> list[str]:
    return [f"gpu{number:03d}" for number in range(1, count + 1)]


@run_each("pairing", ["all", "ring", "auto"])
@run_each("count", [0, 1, 2, 3, 4, 7, 8, 9, 33])
def test_no_host_is_in_two_tests_at_a_time_and_none_is_left_out(count: int, pairing: Pairing) -> None:
    planned = plan_rounds(names(count), pairing)
    for pairs in planned:
        hosts = [host for pair in pairs for host in pair]
        assert len(hosts) == len(set(hosts))
        assert pairs
    met = {host for pairs in planned for pair in pairs for host in pair}
    assert met == (set(names(count)) if count > 1 else set())
    tested = [frozenset(pair) for pairs in planned for pair in pairs]
    assert len(tested) == len(set(tested))


@run_each("count", [2, 3, 8, 9])
def test_all_pairs_take_as_few_rounds_as_can_be(count: int) -> None:
    planned = plan_rounds(names(count), "all")
    assert sum(len(pairs) for pairs in planned) == count * (count - 1) // 2
    assert len(planned) == (count if count % 2 else count - 1)


@run_each(("count", "turns"), [(2, 1), (3, 3), (4, 2), (100, 2), (101, 3)])
def test_a_ring_takes_two_rounds_or_three(count: int, turns: int) -> None:
    planned = plan_rounds(names(count), "ring")
    assert len(planned) == turns
    assert sum(len(pairs) for pairs in planned) == (count if count > 2 else 1)


def test_a_large_group_is_tested_in_a_ring() -> None:
    assert sum(len(pairs) for pairs in plan_rounds(names(GROUP), "auto")) == GROUP * (GROUP - 1) // 2
    assert sum(len(pairs) for pairs in plan_rounds(names(GROUP + 1), "auto")) == GROUP + 1


def test_forks_cut_rounds_so_that_no_server_waits_for_a_client_that_has_no_turn() -> None:
    planned = plan_rounds(names(8), "all")
    assert split_rounds(planned, 256) == planned
    for forks in (1, 3):
        cut = split_rounds(planned, forks)
        assert max(map(len, cut)) == forks
        assert [pair for one in cut for pair in one] == [pair for one in planned for pair in one]
