"""Tests between hosts, with hosts that are there only as their answers: what they are told, and what may go wrong."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gpuprov.accept.lock import Lock
from gpuprov.accept.model import Finding, Options, Outcome, Ran, Step
from gpuprov.capabilities.acceptance.fragment import Acceptance, RdmaTests
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.core.errors import GpuprovError
from tests.accept.fleet import Fleet, bandwidth, data, devices, facts, gone, latency, run
from tests.rows import run_each

GOOD = bandwidth(391.2)
BOTH = Acceptance(rdma=RdmaTests(tests=("write_bw", "send_lat"), latency=3))


def bad(outcome: Outcome) -> list[Finding]:
    return [one for one in outcome.findings if one.status not in ("pass", "skip")]


def test_good_pairs_are_accepted_and_every_lock_is_given_back() -> None:
    fleet = Fleet(ib_write_bw=GOOD, ib_send_lat=latency(2.1))
    outcome = run(fleet, 4, BOTH)
    assert outcome.exit_code == 0
    assert len(outcome.findings) == 6 * 3, "six pairs: bandwidth both ways, latency one way"
    assert not fleet.held
    assert sorted(fleet.ended) == ["gpu1", "gpu2", "gpu3", "gpu4"]
    assert set(fleet.written) == {"gpu1", "gpu2", "gpu3", "gpu4"}


def test_a_server_is_up_before_its_client_starts_and_down_before_the_next() -> None:
    fleet = Fleet(ib_write_bw=GOOD)
    run(fleet, 2)
    assert fleet.rounds[:3] == [["gpu2"], ["gpu1"], ["gpu2"]]
    assert fleet.rounds[3:6] == [["gpu1"], ["gpu2"], ["gpu1"]]


def test_a_tool_that_is_not_there_is_skipped_with_a_reason() -> None:
    outcome = run(Fleet(), 2, found={"gpu2": facts(2, acceptance_tools="tool|rping|/usr/bin/rping\n")})
    assert outcome.exit_code == 1, "nothing was measured at all"
    assert "no ib_write_bw on gpu2: gpuprov apply installs it" in outcome.findings[0].found


def test_a_threshold_that_is_missed_by_a_little_is_missed() -> None:
    outcome = run(Fleet(ib_write_bw=bandwidth(389.99)), 2)
    assert [one.status for one in outcome.findings] == ["fail", "fail"]
    assert "at least 390 Gb/s (published: https://" in outcome.findings[0].expected
    assert outcome.exit_code == 1


def test_one_slow_pair_is_found_among_many() -> None:
    fleet = Fleet(ib_write_bw=GOOD)
    fleet.pairs["gpu3", "10.0.0.5"] = bandwidth(196.1)
    outcome = run(fleet, 6)
    assert [(one.host, one.measurement.peer) for one in bad(outcome) if one.measurement] == [("gpu3", "gpu5")]


def test_a_host_that_dies_in_the_middle_is_told_and_the_others_go_on() -> None:
    fleet = Fleet(ib_write_bw=GOOD)
    fleet.dies["gpu2"] = 5
    outcome = run(fleet, 4)
    lost = [one for one in outcome.findings if one.status == "unreachable"]
    assert [(one.host, one.found) for one in lost] == [("gpu2", "gpu2: the connection was lost while reading")]
    assert outcome.exit_code == 4
    good = {(one.host, one.measurement.peer) for one in outcome.findings if one.status == "pass" and one.measurement}
    assert {("gpu1", "gpu3"), ("gpu3", "gpu4"), ("gpu4", "gpu1")} <= good
    assert fleet.held == {"gpu2"}, "it gives its lock back by itself; the others have"
    assert sorted(fleet.ended) == ["gpu1", "gpu3", "gpu4"]


def test_a_server_that_does_not_come_up_is_told_with_what_it_said() -> None:
    fleet = Fleet(ib_write_bw=GOOD)
    fleet.servers["gpu2"] = " Couldn't get context for the device\nCouldn't open device mlx5_0\n"
    outcome = run(fleet, 2)
    assert "its server on gpu2 did not come up: Couldn't get context" in bad(outcome)[0].found
    assert [one.status for one in outcome.findings] == ["error", "pass"]


@run_each("lines", range(1, 21, 3))
def test_a_cut_output_is_no_figure(lines: int) -> None:
    cut = "\n".join(GOOD.splitlines()[:lines])
    assert {one.status for one in run(Fleet(ib_write_bw=cut), 2).findings} == {"error"}


def test_a_test_that_does_not_end_is_told_as_such() -> None:
    fleet = Fleet(ib_write_bw=lambda _step: Ran(text="", status=124))
    assert bad(run(fleet, 2))[0].found.endswith("it did not end in time")


def test_what_the_server_said_of_it_is_told_beside_the_client() -> None:
    fleet = Fleet(ib_write_bw="RDMA_Write BW Test\n")
    fleet.said["gpu2"] = data("write_bw").partition(" #bytes")[0] + " Failed status 12: wr_id 0 syndrom 0x81\n"
    found = bad(run(fleet, 2))
    assert found[0].found.endswith("RDMA_Write BW Test; its server: Failed status 12: wr_id 0 syndrom 0x81")
    assert "its server" not in found[1].found


def test_a_server_that_was_lost_has_said_nothing() -> None:
    fleet = Fleet(ib_write_bw="RDMA_Write BW Test\n")
    fleet.said["gpu2"] = Ran(text="Failed status 12", lost=gone("gpu2"))
    assert "its server" not in bad(run(fleet, 2))[0].found


def test_a_figure_of_a_program_that_failed_is_none() -> None:
    fleet = Fleet(ib_write_bw=lambda _step: Ran(text=GOOD + "Completion with error at client\n", status=1))
    assert "exit status 1: Completion with error" in bad(run(fleet, 2))[0].found


def test_a_lock_that_somebody_else_holds_keeps_its_host_out() -> None:
    fleet = Fleet(ib_write_bw=GOOD)
    owner = {"user": "kim", "host": "ops1", "since": "2026-11-21T08:00:00Z", "pid": 77, "controller": "x", "run": "r"}
    fleet.locked["gpu2"] = owner
    outcome = run(fleet, 3)
    assert [(one.host, one.check) for one in bad(outcome)] == [("gpu2", "acceptance.lock")]
    assert bad(outcome)[0].found == "locked by kim on ops1 since 2026-11-21T08:00:00Z (pid 77), lock r"
    assert "--break-lock r" in bad(outcome)[0].fix
    assert "gpu2" not in fleet.ended
    assert {one.host for one in outcome.findings if one.status == "pass"} == {"gpu1", "gpu3"}


def test_break_lock_takes_over_the_lock_that_it_names_and_no_other() -> None:
    owner: dict[str, object] = {"user": "kim", "host": "ops1", "since": "", "pid": 77, "controller": "x", "run": "r"}
    for named, code in ((("r",), 0), (("x", "r"), 0), (("x",), 1), (("",), 1)):
        fleet = Fleet(ib_write_bw=GOOD)
        fleet.locked["gpu2"] = owner
        outcome = run(fleet, 2, options=Options(yes=True, only=("rdma",), break_lock=named))
        assert outcome.exit_code == code, named
        assert code == 0 or "--break-lock r" in bad(outcome)[0].fix


def test_a_host_in_use_is_left_out_with_the_processes_unless_told() -> None:
    fleet = Fleet(ib_write_bw=GOOD)
    fleet.users["gpu1"] = "4711|python3\n==\n4711|python3|session-3.scope\nlooked\n"
    outcome = run(fleet, 3)
    assert bad(outcome)[0].check == "acceptance.idle"
    assert bad(outcome)[0].found == "in use by python3 (pid 4711)"
    assert fleet.ended[0] == "gpu1", "its lock is given back at once"
    assert run(fleet, 3, options=Options(yes=True, only=("rdma",), in_use=True)).exit_code == 0


def test_a_host_of_which_nobody_can_say_who_uses_it_is_left_out() -> None:
    for silence in ("", "==\n", "==\n4711|python3|session-3.scope\n"):
        fleet = Fleet(ib_write_bw=GOOD)
        fleet.users["gpu1"] = silence
        assert bad(run(fleet, 3))[0].found == "its users cannot be read", silence


def test_services_that_hold_gpus_do_not_count_as_use() -> None:
    fleet = Fleet(ib_write_bw=GOOD)
    fleet.users["gpu1"] = "==\n99|nvidia-persiste|nvidia-persistenced.service\nlooked\n"
    assert run(fleet, 2, options=Options(yes=True, only=("rdma", "dcgm"))).exit_code == 0


@run_each("turn", range(1, 7))
def test_an_interrupt_at_any_time_ends_what_runs_and_gives_the_locks_back(turn: int) -> None:
    fleet = Fleet(ib_write_bw=GOOD)
    fleet.interrupt_at = turn
    outcome = run(fleet, 2)
    assert outcome.interrupted
    assert outcome.exit_code == 130
    assert not fleet.held
    assert sorted(fleet.ended) == ["gpu1", "gpu2"]


def test_an_interrupt_while_locks_are_taken_gives_back_what_was_taken() -> None:
    fleet = Fleet()
    fleet.interrupt_lock = True
    assert run(fleet, 3).exit_code == 130
    assert not fleet.held


def test_a_crash_gives_the_locks_back_too() -> None:
    def crash(_step: Step) -> Ran:
        raise RuntimeError("bug")

    fleet = Fleet(ib_write_bw=crash)
    with pytest.raises(RuntimeError):
        run(fleet, 2)
    assert not fleet.held


def test_hosts_of_different_fabrics_are_not_tested_with_each_other() -> None:
    found = {"gpu1": facts(1), "gpu2": facts(2, rdma_devices=devices(2, layer="Ethernet"))}
    outcome = run(Fleet(), 2, found=found)
    assert {one.status for one in outcome.findings} == {"skip"}
    assert "speaks what another host's does" in outcome.findings[0].found


def test_a_host_that_does_not_answer_is_left_out_from_the_beginning() -> None:
    outcome = run(Fleet(ib_write_bw=GOOD), 3, found={"gpu3": gone("gpu3")})
    assert outcome.exit_code == 4
    assert outcome.findings[0].host == "gpu3"
    assert sum(one.status == "pass" for one in outcome.findings) == 2


def test_one_host_alone_is_told_that_a_pair_needs_two() -> None:
    outcome = run(Fleet(), 1)
    assert "needs two" in outcome.findings[0].found


def test_a_port_of_the_spec_that_is_down_is_no_acceptance() -> None:
    down = devices(2) + devices(2).replace("mlx5_0", "mlx5_1").replace("4: ACTIVE", "1: DOWN").replace(
        "0000:10", "0000:11"
    )
    found = {"gpu1": facts(1), "gpu2": facts(2, rdma_devices=down)}
    outcome = run(Fleet(ib_write_bw=GOOD), 2, found=found, capabilities={"rdma": Rdma()})
    assert [(one.host, one.check, one.found) for one in bad(outcome)] == [
        ("gpu2", "acceptance.ports", "mlx5_1 port 1 is DOWN")
    ]
    assert run(Fleet(ib_write_bw=GOOD), 2, found=found).exit_code == 0, (
        "without rdma in the spec nobody says which ports matter"
    )


def test_an_interrupt_writes_no_figures_and_does_not_wait_for_them() -> None:
    fleet = Fleet(ib_write_bw=GOOD)
    fleet.interrupt_at = 5
    run(fleet, 2)
    assert not fleet.written


def test_nothing_to_accept_is_an_error() -> None:
    with pytest.raises(GpuprovError, match="no host has acceptance"):
        run(Fleet(), 0)


def test_a_process_that_ends_meanwhile_is_no_user_and_what_cannot_be_read_is_no_idle_host() -> None:
    fleet = Fleet(ib_write_bw=GOOD)
    fleet.users["gpu1"] = "4711|\n==\n4711||\nlooked\n"
    assert run(fleet, 2).exit_code == 0
    fleet.users["gpu1"] = "4711|python3\nlooked\n"
    assert bad(run(fleet, 3))[0].found == "its users cannot be read"


def test_pings_that_are_all_lost_are_a_missed_figure_not_a_missing_one() -> None:
    none = data("ibping").replace("5 received, 0%", "0 received, 100%")
    outcome = run(Fleet(ibping=none), 2, Acceptance(rdma=RdmaTests(tests=("ping",))))
    assert [(one.status, one.expected) for one in bad(outcome)] == [("fail", "no ping lost")]
    assert "100 % lost" in bad(outcome)[0].found


def test_a_busy_host_that_keeps_its_lock_is_told() -> None:
    fleet = Fleet(ib_write_bw=GOOD)
    fleet.users["gpu1"] = "4711|python3\n==\nlooked\n"
    fleet.dies["gpu1"] = 2
    assert "gpu1 did not give its lock back" in run(fleet, 3).notes[0]


def test_more_hosts_than_are_run_at_a_time_keep_their_locks_until_the_last_had_its_turn() -> None:
    phases: list[list[Step]] = []
    fleet = Fleet(sleep="done")

    def runner(steps: Sequence[Step]) -> dict[str, Ran]:
        phases.append(list(steps))
        return fleet(steps)

    lock = Lock(runner, "run1", 2)
    lock.take(["gpu1", "gpu2", "gpu3"])
    lock.phase(dict.fromkeys(("gpu1", "gpu2", "gpu3"), ("true", 900.0)))
    assert [step.limit for step in phases[1]] == [30.0] * 3, "put off before the first host starts"
    assert all("+ 1980))" in step.script for step in (*phases[1], *phases[2])), "two turns of 900 s, and 180"


def test_a_host_that_is_there_again_gives_its_lock_back() -> None:
    fleet = Fleet()
    lock = Lock(fleet, "run1")
    lock.take(["gpu1"])
    fleet.dies["gpu1"] = 1
    assert lock.phase({"gpu1": ("true", 9.0)})["gpu1"].lost
    assert not lock.held
    del fleet.dies["gpu1"]
    assert lock.release() == {}
    assert fleet.ended == ["gpu1"]
