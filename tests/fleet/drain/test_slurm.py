"""The Slurm adapter: what it changes, and what it leaves."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gpuprov.core.errors import GpuprovError
from gpuprov.fleet.drain.slurm.adapter import Slurm
from tests.fleet.drain.cluster import Cluster

pytestmark = pytest.mark.install


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return Cluster(tmp_path)


def test_out_and_back(cluster: Cluster) -> None:
    slurm = Slurm()
    cluster.put("MIXED", jobs=("7 RUNNING",))
    step = slurm.drain("gpu1", "fri")
    assert (step.state, step.read) == ("done", "State=DRAIN+MIXED Reason=gpuprov fri")
    assert cluster.changes == [["update", "NodeName=gpu1", "State=DRAIN", "Reason=gpuprov fri"]]
    waiting = slurm.drained("gpu1", "fri")
    assert (waiting.state, waiting.waits_for) == ("waiting", ("job 7 RUNNING",))
    cluster.put("IDLE+DRAIN", "gpuprov fri")
    assert slurm.drained("gpu1", "fri").state == "done"
    back = slurm.returned("gpu1", "fri", green=True)
    assert (back.state, back.message) == ("waiting", "it is in service, and its slurmd has not answered yet")
    cluster.put("IDLE")
    assert slurm.returned("gpu1", "fri", green=True).state == "done"
    assert [words[0] for words in cluster.changes] == ["update", "update"]


def test_each_step_again_changes_nothing(cluster: Cluster) -> None:
    for state in ("IDLE+DRAIN", "DOWN+DRAIN", "DOWN"):
        cluster.put(state, "gpuprov fri")
        assert Slurm().drain("gpu1", "fri").state == "done"
        assert Slurm().drained("gpu1", "fri").state == "done"
    cluster.put("IDLE", "gpuprov fri : Not responding")  # 24.11 keeps the reason of a node that was resumed
    assert Slurm().returned("gpu1", "fri", green=True).state == "done"
    assert cluster.changes == []


@pytest.mark.parametrize("reason", ["gpuprov fri : Not responding", "gpuprov fri : reboot issued : reboot complete"])
def test_what_slurmctld_adds_leaves_it_ours(cluster: Cluster, reason: str) -> None:
    cluster.put("DOWN+DRAIN", reason)
    assert Slurm().drained("gpu1", "fri").state == "done"
    assert Slurm().returned("gpu1", "fri", green=True).state == "waiting"
    assert cluster.changes[-1] == ["update", "NodeName=gpu1", "State=RESUME"]


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("IDLE+DRAIN", "bad HCA"),
        ("MIXED+DRAIN", "bad HCA\nask Ann"),
        ("DOWN", ""),
        ("DOWN*", "Not responding"),
        ("IDLE+REBOOT_REQUESTED", "kernel"),
        ("IDLE+DRAIN", "gpuprov"),
        ("IDLE+DRAIN", "gpuprov fri : bad HCA"),
        ("IDLE+DRAIN", "gpuprov friday"),
        ("IDLE+DRAIN", "gpuprov fri\nand the HCA is bad"),
        ("IDLE+DRAIN", " gpuprov fri"),
        ("IDLE+FAIL", "gpuprov-fri"),
    ],
)
def test_what_is_somebody_elses_stays(cluster: Cluster, state: str, reason: str) -> None:
    cluster.put(state, reason)
    slurm = Slurm()
    steps = [slurm.drain("gpu1", "fri")]
    if "REBOOT" not in state:
        steps += [slurm.drained("gpu1", "fri"), slurm.returned("gpu1", "fri", green=True)]
    assert {step.state for step in steps} == {"refused"}
    assert all(reason.partition(" : ")[0] in step.message + step.read for step in steps)
    assert cluster.changes == []
    assert cluster.node == (state, reason)


def test_whose_it_is_is_said(cluster: Cluster) -> None:
    cluster.put("IDLE+DRAIN", "bad HCA")
    step = Slurm().drain("gpu1", "fri")
    assert step.message == "somebody else (root) has taken it out, DRAIN: bad HCA"
    assert (step.others, step.is_free) == (True, True)
    cluster.put("IDLE+DRAIN", "gpuprov thu")
    step = Slurm().drain("gpu1", "fri")
    assert (step.message, step.fix) == (
        "run thu has it (DRAIN)",
        "gpuprov undrain HOST INVENTORY --by slurm --run thu gives it back",
    )


@pytest.mark.parametrize(
    ("state", "reason", "jobs", "others", "waits"),
    [
        ("IDLE+DRAIN", "bad HCA", (), True, ()),
        ("DOWN*", "Not responding", (), True, ()),
        ("ALLOCATED+DRAIN", "replace PSU after jobs", ("7 RUNNING",), True, ("job 7 RUNNING",)),
        ("MIXED+DRAIN", "gpuprov thu", ("7 RUNNING",), True, ("job 7 RUNNING",)),
        ("MIXED+DRAIN", "bad HCA", (), True, ("jobs that squeue does not show to this user",)),
        ("MIXED+REBOOT_REQUESTED", "kernel", ("7 RUNNING",), False, ()),
        ("IDLE+DRAIN+REBOOT_REQUESTED", "kernel", (), False, ()),
    ],
)
def test_what_runs_on_a_node_that_others_drained_is_named(
    cluster: Cluster, state: str, reason: str, jobs: tuple[str, ...], others: bool, waits: tuple[str, ...]
) -> None:
    cluster.put(state, reason, jobs)
    step = Slurm().drain("gpu1", "fri")
    assert (step.state, step.others, step.waits_for) == ("refused", others, waits)
    assert Slurm().drained("gpu1", "fri").others == others
    assert (step.is_free, cluster.changes) == (others and not waits, [])


def test_a_reason_that_is_no_run_is_no_word_of_a_command(cluster: Cluster) -> None:
    cluster.put("IDLE+DRAIN", "gpuprov fri; reboot")
    assert "undrain" not in Slurm().drain("gpu1", "fri").fix


def test_an_old_reason_of_a_node_in_service_is_nobodys(cluster: Cluster) -> None:
    cluster.put("IDLE", "bad HCA")  # 24.11 keeps it when an admin resumes the node
    assert Slurm().drain("gpu1", "fri").state == "done"


def test_an_admin_who_is_quicker_keeps_the_node(cluster: Cluster) -> None:
    cluster.put("IDLE", meanwhile={"state": "IDLE+DRAIN", "reason": "bad HCA"})
    step = Slurm().drain("gpu1", "fri")
    assert (step.state, step.read) == ("refused", "State=DRAIN+IDLE Reason=bad HCA")


def test_what_an_admins_shell_has_for_squeue_and_scontrol_hides_nothing(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SQUEUE_STATES", "RUNNING")
    monkeypatch.setenv("SLURM_TIME_FORMAT", "relative")
    cluster.put("IDLE+DRAIN", "gpuprov fri", jobs=("7 SUSPENDED",))
    step = Slurm().drained("gpu1", "fri")
    assert (step.state, step.waits_for) == ("waiting", ("job 7 SUSPENDED",))
    assert step.read == "State=DRAIN+IDLE Reason=gpuprov fri"


def test_a_node_that_registered_with_too_few_gpus_stays_drained(cluster: Cluster) -> None:
    cluster.put("IDLE+DRAIN+INVALID_REG", "gpuprov fri")
    step = Slurm().returned("gpu1", "fri", green=True)
    assert (step.state, cluster.changes) == ("waiting", [])
    assert "registered with less" in step.message


def test_a_host_that_is_not_green_stays_out(cluster: Cluster) -> None:
    cluster.put("IDLE+DRAIN", "gpuprov fri")
    step = Slurm().returned("gpu1", "fri", green=False)
    assert (step.state, cluster.changes) == ("refused", [])
    assert "stays drained" in step.message


def test_jobs_that_are_hidden_from_us_are_waited_for(cluster: Cluster) -> None:
    cluster.put("MIXED+DRAIN", "gpuprov fri")  # PrivateData=jobs
    step = Slurm().drained("gpu1", "fri")
    assert (step.state, step.waits_for) == ("waiting", ("jobs that squeue does not show to this user",))


def test_a_suspended_job_is_waited_for(cluster: Cluster) -> None:
    cluster.put("IDLE+DRAIN", "gpuprov fri", jobs=("7 SUSPENDED", *(f"{n} RUNNING" for n in range(100, 130))))
    step = Slurm().drained("gpu1", "fri")
    assert (step.state, step.waits_for[0], step.waits_for[-1]) == ("waiting", "job 7 SUSPENDED", "and 11 more")


@pytest.mark.parametrize(
    "name", ["gpu[1-4]", "gpu1,gpu2", "ALL", "all", "", "-h", "gpu1 State=DOWN", "gpu1\n", "../x", "gpu*"]
)
def test_several_nodes_are_no_node(cluster: Cluster, name: str) -> None:
    slurm = Slurm({"gpu1": name}) if name else Slurm()
    step = slurm.drain("gpu1" if name else "", "fri")
    assert step.state == "refused"
    assert "not a name of one node" in step.message
    assert (cluster.folder / "asked").read_text() == ""


def test_a_node_that_slurm_does_not_know(cluster: Cluster) -> None:
    step = Slurm({"host1": "gpu9"}).drain("host1", "fri")
    assert (step.state, step.message) == ("refused", "Slurm knows no node gpu9")
    assert "host_slurm_node" in step.fix
    assert Slurm({"host1": "gpu1"}).drain("host1", "fri").node == "gpu1"


@pytest.mark.parametrize("run", ["", "a b", "x;y", "a\nb", "-x", "x" * 64, "é"])
def test_a_run_that_is_no_word_is_refused(cluster: Cluster, run: str) -> None:
    with pytest.raises(GpuprovError, match="allowed: at most 63"):
        Slurm().drain("gpu1", run)
    assert cluster.changes == []


def test_a_controller_that_does_not_answer(cluster: Cluster) -> None:
    complaint = "slurm_load_node error: Unable to contact slurm controller (connect failure)"
    cluster.put(fails=complaint)
    step = Slurm().drain("gpu1", "fri")
    assert (step.state, complaint in step.message) == ("unknown", True)


@pytest.mark.parametrize("words", ["Invalid user id", "Access/permission denied"])
def test_without_the_right_to_do_it(cluster: Cluster, words: str) -> None:
    cluster.put(denied=words)
    step = Slurm().drain("gpu1", "fri")
    assert step.state == "refused"
    assert words in step.message
    assert "operator" in step.fix


@pytest.mark.parametrize(
    "text",
    ["\x1b[2J\x00\xff", "NodeName=gpu1 \x07", "{" * 9000, "x" * (9 << 20)],
    ids=["escapes", "cut", "deep", "huge"],
)
def test_hostile_output_is_no_state(cluster: Cluster, text: str) -> None:
    cluster.put(said=text)
    step = Slurm().drain("gpu1", "fri")
    assert (step.state, cluster.changes) == ("unknown", [])


def test_a_program_that_hangs_is_ended(cluster: Cluster) -> None:
    (cluster.folder / "scontrol").write_text("#!/bin/sh\nsleep 60 & wait\n")
    started = time.monotonic()
    step = Slurm(limit=0.5).drain("gpu1", "fri")
    assert (step.state, time.monotonic() - started < 10) == ("unknown", True)
    assert "did not end within 0.5 s" in step.message


def test_without_scontrol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GpuprovError, match="scontrol is not installed here"):
        Slurm().drain("gpu1", "fri")
