"""What stands out of an acceptance: the host that is slow, not each of its figures; the path that is, and not its two
hosts."""

from __future__ import annotations

import pytest

from gpuprov.accept import document, show
from gpuprov.accept.model import Finding, Options, Outcome
from gpuprov.accept.outliers import find_outliers
from gpuprov.capabilities.acceptance.fragment import Acceptance, RdmaTests
from tests import documents
from tests.accept.fleet import Fleet, bandwidth, devices, facts, latency, run

SLOW = 196.1
BOTH = Acceptance(rdma=RdmaTests(tests=("write_bw", "send_lat"), latency=3))


def fleet(slow: list[tuple[int, int]], count: int = 5, value: float = SLOW, **more: object) -> Outcome:
    """Hosts with one rail at 391 Gb/s; these pairs (from, to) are slow."""
    hosts = Fleet(ib_write_bw=bandwidth(391.2), ib_send_lat=latency(2.0))
    for sender, receiver in slow:
        hosts.pairs[f"gpu{sender}", f"10.0.0.{receiver}"] = bandwidth(value)
    return run(hosts, count, **more)  # type: ignore[arg-type]


def told(outcome: Outcome) -> list[str]:
    return [one.sentence for one in find_outliers(outcome)]


def test_nothing_stands_out_of_a_good_fleet() -> None:
    assert told(fleet([])) == []


def test_a_host_that_is_slow_with_all_is_one_sentence() -> None:
    pairs = [(3, n) for n in (1, 2, 4, 5)] + [(n, 3) for n in (1, 2, 4, 5)]
    assert told(fleet(pairs)) == [
        "gpu3 is slow with all 4 hosts that it was tested with: 196 Gb/s at the median, 50 % under what is wanted, "
        "at least 390 Gb/s; the median of those that meet it is 391 Gb/s"
    ]
    assert find_outliers(fleet(pairs))[0].hosts == ("gpu3",)


def test_a_host_that_sends_or_receives_slowly_is_named_so() -> None:
    assert told(fleet([(3, n) for n in (1, 2, 4, 5)]))[0].startswith("gpu3 sends slowly to all 4 hosts")
    assert told(fleet([(n, 3) for n in (1, 2, 4, 5)]))[0].startswith("gpu3 receives slowly from all 4 hosts")


def test_a_slow_path_is_its_pair_and_says_how_the_way_back_is() -> None:
    assert told(fleet([(2, 4)])) == [
        "gpu2 to gpu4: 196 Gb/s, 50 % under what is wanted, at least 390 Gb/s; back: 391 Gb/s"
    ]
    both = told(fleet([(2, 4), (4, 2)]))
    assert len(both) == 1
    assert both[0].startswith("gpu2 to and from gpu4: 196 Gb/s at the median, 50 %")


def test_two_slow_hosts_and_a_path_are_three_sentences() -> None:
    pairs = (
        [(a, b) for a in (1, 2) for b in range(1, 8) if a != b]
        + [(b, a) for a in (1, 2) for b in range(3, 8)]
        + [(4, 6)]
    )
    found = told(fleet(pairs, 7))
    assert sorted(one.partition(" is ")[0].partition(":")[0] for one in found) == ["gpu1", "gpu2", "gpu4 to gpu6"]


def test_where_every_pair_is_missed_no_host_is_blamed() -> None:
    every = [(a, b) for a in range(1, 5) for b in range(1, 5) if a != b]
    found = told(fleet(every, 4))
    assert len(found) == 1
    assert found[0].startswith("no pair of hosts meets its threshold: 196 Gb/s at the median")


def test_a_neighbour_of_a_slow_host_in_a_ring_is_not_blamed() -> None:
    found = told(fleet([(4, 3), (4, 5), (3, 4), (5, 4)], 10))
    assert len(found) == 1
    assert found[0].startswith("gpu4 is slow with both hosts")


def test_a_figure_that_is_not_missed_and_far_from_the_others_is_told_but_fails_nothing() -> None:
    block = Acceptance(rdma=RdmaTests(tests=("write_bw",), bandwidth=100))
    outcome = fleet([(2, 4)], block=block)
    assert outcome.exit_code == 0
    assert told(outcome) == [
        "gpu2 to gpu4: 196 Gb/s; not missed, but 50 % worse than the median of all, 391 Gb/s; back: 391 Gb/s"
    ]
    assert show.as_text(outcome).startswith("SLOW  write_bw: gpu2 to gpu4")


def test_latency_is_one_figure_for_a_pair_and_more_is_worse() -> None:
    hosts = Fleet(ib_write_bw=bandwidth(391.2), ib_send_lat=latency(2.0))
    outcome = run(hosts, 4, BOTH)
    assert told(outcome) == []
    hosts = Fleet(ib_write_bw=bandwidth(391.2), ib_send_lat=latency(4.5))
    assert told(run(hosts, 2, BOTH)) == ["gpu1 with gpu2: 4.5 us, 50 % over what is wanted, at most 3 us"]


def test_a_pair_without_a_figure_says_why() -> None:
    outcome = fleet([])
    hosts = Fleet(ib_write_bw=bandwidth(391.2))
    hosts.pairs["gpu2", "10.0.0.4"] = "Couldn't connect to 10.0.0.4:18515\n"
    outcome = run(hosts, 5)
    assert len(told(outcome)) == 1
    assert told(outcome)[0].startswith("gpu2 to gpu4: no figure: ")
    assert "Couldn't connect" in told(outcome)[0]


def test_rails_the_worst_counts() -> None:
    found = {f"gpu{n}": facts(n, rdma_devices=devices(n, rails=2)) for n in range(1, 4)}
    hosts = Fleet(ib_write_bw=bandwidth(391.2))
    hosts.pairs["gpu1", "10.0.0.2"] = bandwidth(SLOW)
    assert len(told(run(hosts, 3, found=found, options=Options(yes=True)))) == 1


@pytest.mark.install
def test_every_finding_that_is_wrong_is_in_a_sentence() -> None:
    wrong = Finding(
        host="gpu9", check="acceptance.idle", status="fail", found="python3 holds GPU 0", expected="no client"
    )
    outcome = fleet([(1, 2), (3, 4)])
    outcome.findings.append(wrong)
    found = find_outliers(outcome)
    assert any(one.sentence == "gpu9: python3 holds GPU 0; wanted: no client" for one in found)
    bad = {one.host for one in outcome.findings if one.status == "fail"}
    assert bad <= {name for one in found for name in one.hosts}
    assert [row["sentence"] for row in documents.read_document(document.build_document(outcome))["outliers"]] == [
        one.sentence for one in found
    ]


def test_a_host_that_is_slow_with_most_says_of_how_many() -> None:
    found = told(fleet([(3, n) for n in (1, 2, 4, 5)], 6))
    assert found[0].startswith("gpu3 sends slowly to 4 of the 5 hosts that it was tested with: 196 Gb/s")
