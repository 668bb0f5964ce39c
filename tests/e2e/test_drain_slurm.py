"""gpuprov drain and undrain beside a real slurmctld: Debian's 22.05 and 24.11, with four slurmd on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.gpus.gpu_processes import PROCESSES
from gpuprov.fleet.drain.slurm.adapter import Slurm as Adapter
from gpuprov.simulate import container
from gpuprov.simulate.description import Description
from tests.e2e.slurm import NODES, Slurm, start

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
ADMIN = "bad HCA\n second line [x@y] State=IDLE "


@pytest.fixture(scope="module", params=["debian12", "debian13"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    name = f"e2e-slurm-{request.param}"
    container.down(name)
    try:
        container.up(name, Description(distribution=request.param))
        yield start(name, tmp_path_factory.mktemp("clients"))
    finally:
        container.down(name)


@pytest.fixture(autouse=True)
def _all_in_service(cluster: Slurm) -> Iterator[None]:
    yield
    for node in NODES:
        cluster.sh(f"scontrol update NodeName={node} State=RESUME 2> /dev/null || true")
        cluster.wait(node, "State=", without="NOT_RESPONDING")


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    hosts = "".join(f"    {node}: {{}}\n" for node in NODES[:3])
    (tmp_path / "inventory.yaml").write_text(f"all:\n  hosts:\n{hosts}    other: {{host_slurm_node: gpu4}}\n")
    return tmp_path / "inventory.yaml"


@pytest.fixture
def adapter(cluster: Slurm, monkeypatch: pytest.MonkeyPatch) -> Adapter:
    """For what no command does."""
    monkeypatch.setenv("PATH", f"{cluster.folder}:/usr/sbin:/usr/bin:/sbin:/bin")
    return Adapter()


def test_a_running_job_is_waited_for_and_ends_by_itself(cluster: Slurm, inventory: Path) -> None:
    job = cluster.sh(
        "cd /tmp && sbatch --parsable -w gpu1 -n1 --wrap 'until [ -e /tmp/enough ]; do sleep 0.5; done'"
    ).strip()
    cluster.wait("gpu1", "State=MIXED")
    done = cluster.gpuprov("drain", "gpu1", inventory, "--wait", "0")
    assert (done.returncode, f"job {job} RUNNING" in done.stdout) == (1, True), done
    assert "State=MIXED+DRAIN\n   Reason=gpuprov fri [" in cluster.show("gpu1")
    cluster.sh("(sleep 6; touch /tmp/enough) > /dev/null 2>&1 &")
    done = cluster.gpuprov("drain", "gpu1", inventory, "--wait", "120")
    assert (done.returncode, done.stdout) == (0, "gpu1: drained: State=DRAIN+IDLE Reason=gpuprov fri\n"), done
    assert "JobState=COMPLETED" in cluster.sh(f"scontrol show job {job}")
    done = cluster.gpuprov("undrain", "gpu1", inventory, "--unverified")
    assert done.returncode == 0, done
    assert cluster.show("gpu1").startswith("State=IDLE")


def test_what_an_admin_has_drained_stays_to_the_byte(cluster: Slurm, inventory: Path) -> None:
    cluster.sh(f"scontrol update NodeName=gpu2 State=DRAIN Reason='{ADMIN}'")
    cluster.sh("scontrol update NodeName=gpu3 State=DOWN Reason='dead fan'")
    before = [cluster.show(node) for node in ("gpu2", "gpu3")]
    for words in (("drain", "gpu2,gpu3", inventory), ("undrain", "gpu2,gpu3", inventory, "--unverified")):
        done = cluster.gpuprov(*words)
        assert done.returncode == 3, done
        assert "somebody else (root) has taken it out, DRAIN: bad HCA" in done.stdout
        assert "somebody else (root) has taken it out, DOWN: dead fan" in done.stdout
        assert [cluster.show(node) for node in ("gpu2", "gpu3")] == before


def test_an_admin_who_takes_it_over_keeps_it(cluster: Slurm, inventory: Path) -> None:
    assert cluster.gpuprov("drain", "gpu2", inventory).returncode == 0
    cluster.sh("scontrol update NodeName=gpu2 Reason='gpuprov fri : bad HCA'")
    before = cluster.show("gpu2")
    done = cluster.gpuprov("undrain", "gpu2", inventory, "--unverified")
    assert (done.returncode, cluster.show("gpu2")) == (3, before), done


def test_the_drain_outlives_our_own_reboot(cluster: Slurm, inventory: Path) -> None:
    assert cluster.gpuprov("drain", "gpu3", inventory).returncode == 0
    cluster.sh("kill $(cat /run/slurmd-gpu3.pid)")
    cluster.wait("gpu3", "NOT_RESPONDING")
    cluster.sh("sleep 12; slurmd -b -N gpu3")
    shown = cluster.wait("gpu3", "DRAIN", without="NOT_RESPONDING")
    assert "Reason=gpuprov fri" in shown
    assert cluster.gpuprov("drain", "gpu3", inventory).returncode == 0, "again, after slurmctld has added to the reason"
    assert cluster.gpuprov("undrain", "gpu3", inventory, "--unverified").returncode == 0
    assert cluster.show("gpu3").startswith("State=IDLE")


def test_a_reboot_by_slurm_leaves_the_node_down_until_it_is_returned(
    cluster: Slurm, inventory: Path, adapter: Adapter
) -> None:
    assert cluster.gpuprov("drain", "other", inventory).returncode == 0
    cluster.sh("scontrol reboot ASAP nextstate=DOWN reason='gpuprov fri' gpu4")
    cluster.wait("gpu4", "REBOOT_ISSUED")
    cluster.boot("gpu4")
    shown = cluster.wait("gpu4", "reboot complete")
    assert shown.startswith("State=DOWN\n   Reason=gpuprov fri : reboot issued : reboot complete"), shown
    assert adapter.returned("gpu4", "fri", green=False).state == "refused"
    done = cluster.gpuprov("undrain", "other", inventory, "--unverified")
    assert (done.returncode, cluster.show("gpu4").splitlines()[0]) == (0, "State=IDLE"), done


@pytest.mark.parametrize("verb", ["show", "update"])
def test_a_client_that_was_killed_is_followed_by_another(cluster: Slurm, inventory: Path, verb: str) -> None:
    for words, shows in (("drain", "State=IDLE+DRAIN"), ("undrain", "State=IDLE")):
        more = ("--unverified",) if words == "undrain" else ()
        cluster.kill_after(verb)
        assert cluster.gpuprov(words, "gpu1", inventory, *more).returncode == -9
        done = cluster.gpuprov(words, "gpu1", inventory, *more)
        assert done.returncode == 0, done
        assert cluster.show("gpu1").startswith(shows)


def test_without_a_controller_nothing_is_known(cluster: Slurm, inventory: Path) -> None:
    cluster.sh("pkill slurmctld; sleep 1")
    done = cluster.gpuprov("drain", "gpu1", inventory, "--wait", "0")
    assert (done.returncode, "Unable to contact slurm controller" in done.stdout) == (4, True), done
    cluster.sh("slurmctld; sleep 1")
    cluster.wait("gpu1", "State=IDLE", without="NOT_RESPONDING")


def test_hosts_that_slurm_does_not_know_are_refused(cluster: Slurm, tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text('all: {hosts: {nosuch: {}, wide: {host_slurm_node: "gpu[1-4]"}}}\n')
    done = cluster.gpuprov("drain", "all", tmp_path / "other.yaml", "--wait", "0")
    assert done.returncode == 3, done
    assert "nosuch: refused: Slurm knows no node nosuch" in done.stdout
    assert "'gpu[1-4]' is not a name of one node" in done.stdout
    assert cluster.show("gpu1").startswith("State=IDLE")


SMI = """#!/bin/sh
case $1 in *memory.used) ;; *) sed 's/.*/00000000:19:00.0, &, 9 MiB/' /tmp/on-the-gpu;; esac
"""


def test_a_process_that_its_job_left_behind_is_found_on_a_gpu(cluster: Slurm) -> None:
    """By a real slurmd, whose tracking of processes one that begins a session of its own escapes (proctrack/pgid)."""
    job = int(
        cluster.sh(
            "cd /tmp && sbatch --parsable -w gpu4 -n1 --wrap "
            '\'setsid sh -c "echo \\$\\$ > /tmp/on-the-gpu; exec sleep 600" & until [ -e /tmp/ended ]; do sleep '
            "0.5; done'"
        )
    )
    cluster.sh("until [ -s /tmp/on-the-gpu ]; do sleep 0.2; done")
    look = (
        f"mkdir -p /tmp/smi; cat > /tmp/smi/nvidia-smi <<'EOF'\n{SMI}EOF\nchmod +x "
        "/tmp/smi/nvidia-smi\nPATH=/tmp/smi:$PATH\n"
    )
    try:
        found = PROCESSES.parse(Output(cluster.sh(look + PROCESSES.script)))
        assert [(one.state, one.name, one.job) for one in found.held] == [("S", "sleep", job)]
        assert (found.slurmd, job in found.jobs) == (True, True)
        cluster.sh(f"touch /tmp/ended; while squeue -h -j {job} 2> /dev/null | grep -q .; do sleep 0.5; done")
        found = PROCESSES.parse(Output(cluster.sh(look + PROCESSES.script)))
        assert [(one.state, one.job) for one in found.held] == [("S", job)]
        assert (found.slurmd, job in found.jobs) == (True, False)
    finally:
        cluster.sh("kill $(cat /tmp/on-the-gpu); rm -f /tmp/on-the-gpu /tmp/ended")
