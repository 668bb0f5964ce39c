"""Processes on GPUs, of which some have ended: with real zombies, and an nvidia-smi that names them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from gpuprov.capabilities.health.fragment import Health
from gpuprov.facts.probes.base import Output, ProbeFailed
from gpuprov.facts.probes.gpus.gpu_processes import PROCESSES, Processes
from gpuprov.verify.evaluate import Result
from gpuprov.verify.fitness import fitness
from tests.capabilities.asking import Row, ask, judge
from tests.capabilities.health_host import WELL, smi
from tests.facts.probes import run_script, run_well
from tests.rows import run_each

CHECK = "health.processes"
BUS = "00000000:19:00.0"


def looked(folder: Path, *rows: str, status: int = 0, used: str = "") -> Output:
    """What the probe prints on a host whose nvidia-smi prints these rows."""
    (folder / "rows").write_text("".join(f"{row}\n" for row in rows))
    (folder / "used").write_text(used)
    smi = f"case $1 in *memory.used) cat {folder}/used;; *) cat {folder}/rows; exit {status};; esac"
    script = PROCESSES.script.replace("sleep 4", "sleep 1")
    return run_script(script, folder, {"nvidia-smi": smi}, path=f"{folder}:{os.environ['PATH']}")


@pytest.mark.install
def test_a_zombie_a_process_that_is_gone_and_one_that_lives(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        mine, gone = os.getpid(), 2**22 + 7
        found = PROCESSES.parse(
            looked(tmp_path, f"{BUS}, {child.pid}, 81000 MiB", f"{BUS}, {gone}, 10151 MiB", f"{BUS}, {mine}, 3 MiB")
        )
    held = found.held
    assert [(one.pid, one.state) for one in held] == [(child.pid, "Z"), (gone, ""), (mine, held[2].state)]
    assert held[2].state in "RS"
    assert (held[2].memory, held[2].name) == ("3 MiB", Path("/proc/self/comm").read_text().strip())


def test_a_name_forges_no_process(tmp_path: Path) -> None:
    """prctl(PR_SET_NAME) takes a newline, and nvidia-smi prints a program's name as it is."""
    name = f"X) Z|b,7,1|\n{chr(0)}"
    code = f"import ctypes, time; ctypes.CDLL(None).prctl(15, {name!r}.encode()); print(flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout
            child.stdout.readline()
            found = PROCESSES.parse(looked(tmp_path, f"{BUS}, {child.pid}, 3 MiB"))
        finally:
            child.kill()
    assert [(one.gpu, one.pid, one.state) for one in found.held] == [(BUS, child.pid, "S")]
    assert found.held[0].name.strip() == "X) Z b,7,1"


def test_no_process_is_an_answer_and_a_failure_is_none(tmp_path: Path) -> None:
    assert PROCESSES.parse(looked(tmp_path)) == Processes()
    with pytest.raises(ProbeFailed, match="could not be listed: Unable to determine"):
        PROCESSES.parse(looked(tmp_path, "Unable to determine the device handle for GPU0: Unknown Error", status=15))


@contextmanager
def running(folder: Path, name: str, title: str = "", **environment: str) -> Iterator[int]:
    """A process of this name and title; the kernel takes the name from the program's file, as it does for Slurm's."""
    program = shutil.copy(shutil.which("sleep") or "", folder / name)
    with subprocess.Popen([title or name, "60"], executable=program, env={**os.environ, **environment}) as child:
        try:
            yield child.pid
        finally:
            child.kill()


def test_a_process_of_a_job_whose_step_still_runs_and_of_one_whose_steps_have_ended(tmp_path: Path) -> None:
    with (
        running(tmp_path, "slurmd"),
        running(tmp_path, "slurmstepd", "slurmstepd: [4711.batch]"),
        running(tmp_path, "python3", SLURM_JOB_ID="4711") as works,
        running(tmp_path, "left", SLURM_JOB_ID="4710") as left,
        running(tmp_path, "forged", SLURM_JOB_ID="4711|x") as forged,
        running(tmp_path, "mixed", SLURM_JOB_ID="4710", SLURM_HET_SIZE="2") as mixed,
    ):
        rows = (f"{BUS}, {pid}, 3 MiB" for pid in (works, left, forged, mixed))
        found = PROCESSES.parse(looked(tmp_path, *rows, used=f"{BUS}, 81000\n"))
    assert {one.pid: one.job for one in found.held} == {works: 4711, left: 4710, forged: None, mixed: None}
    assert (found.slurmd, found.used) == (True, {BUS: 81000})
    assert 4711 in found.jobs
    assert 4710 not in found.jobs


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a program of root's that others may start")
def test_who_calls_a_program_of_roots_by_another_name_is_no_slurmd() -> None:
    """As with su, called by a link of this name: the process is root's, and a user has started it."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        program = Path(shutil.copy(shutil.which("sleep") or "", folder / "slurmd"))
        program.chmod(0o4755)
        with subprocess.Popen(["slurmd", "60"], executable=program, user=65534, group=65534) as child:
            try:
                while Path(f"/proc/{child.pid}/comm").read_text() != "slurmd\n":
                    time.sleep(0.01)
                found = PROCESSES.parse(looked(folder, f"{BUS}, {os.getpid()}, 3 MiB"))
            finally:
                child.kill()
    assert not found.slurmd


@pytest.mark.install
def test_a_process_that_ends_while_the_host_is_looked_at_is_not_left(tmp_path: Path) -> None:
    """A host on which jobs end every second is well: nvidia-smi names it once."""
    gone, named = 2**22 + 7, 2**22 + 8
    smi = f"""case $1 in *memory.used) exit;; esac
[ -e {tmp_path}/asked ] || echo '{BUS}, {gone}, 3 MiB'
: > {tmp_path}/asked
echo '{BUS}, {named}, 3 MiB'"""
    output = run_well(PROCESSES.script, tmp_path, {"nvidia-smi": smi})
    assert [one.pid for one in PROCESSES.parse(output).held] == [named]
    assert output.error == ""


@pytest.mark.install
def test_one_that_hangs_and_one_that_waits_again_and_again(tmp_path: Path) -> None:
    """The kernel has a parent wait for what vfork made, as for a disk."""
    hang = "import ctypes; c = ctypes.CDLL(None); c.vfork() or c.sleep(60)"
    again = "import ctypes, time; c = ctypes.CDLL(None)\nwhile True: c.vfork() or (c.usleep(300000), c._exit(0))"
    with (
        subprocess.Popen([sys.executable, "-c", hang], start_new_session=True) as hangs,
        subprocess.Popen([sys.executable, "-c", again], start_new_session=True) as waits_,
    ):
        try:
            for one in (hangs, waits_):
                while not re.search(r"\nState:\tD", Path(f"/proc/{one.pid}/status").read_text()):
                    time.sleep(0.01)
            found = PROCESSES.parse(looked(tmp_path, f"{BUS}, {hangs.pid}, 3 MiB", f"{BUS}, {waits_.pid}, 3 MiB"))
        finally:
            os.killpg(hangs.pid, 9)
            os.killpg(waits_.pid, 9)
    assert found.held[0].state == "D"
    assert found.held[1].state != "D"


def test_what_slurmd_starts_and_jobs_that_run_on_other_hosts(tmp_path: Path) -> None:
    """A prolog's test of the GPUs has its job's number, and no step yet, and MPS that of an earlier job; mpiexec by ssh
    has ranks where no step is."""
    (tmp_path / "squeue").write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/said\necho 4712\n')
    (tmp_path / "squeue").chmod(0o755)
    shell = shutil.copy("/bin/sh", tmp_path / "slurmd")
    mps = shutil.copy("/bin/sh", tmp_path / "nvidia-cuda-mps-control")
    prolog = "SLURM_JOB_ID=4709 sleep 60 & echo $!; wait"
    with (
        subprocess.Popen(["slurmd", "-c", prolog], executable=shell, stdout=subprocess.PIPE, text=True) as slurmd,
        subprocess.Popen(["mps", "-c", prolog], executable=mps, stdout=subprocess.PIPE, text=True) as control,
        running(tmp_path, "slurmstepd", "slurmstepd: [4711.batch]"),
        running(tmp_path, "python3", SLURM_JOB_ID="4711") as works,
        running(tmp_path, "rank", SLURM_JOB_ID="4712") as rank,
        running(tmp_path, "left", SLURM_JOB_ID="4710") as left,
    ):
        assert slurmd.stdout
        assert control.stdout
        tests, server = int(slurmd.stdout.readline()), int(control.stdout.readline())
        try:
            rows = (f"{BUS}, {pid}, 3 MiB" for pid in (tests, server, works, rank, left))
            found = PROCESSES.parse(looked(tmp_path, *rows))
        finally:
            for pid in (tests, server, slurmd.pid, control.pid):
                os.kill(pid, 9)
    assert {one.pid: one.known for one in found.held} == {
        tests: True,
        server: True,
        works: False,
        rank: False,
        left: False,
    }
    assert {4711, 4712} <= found.jobs
    assert 4710 not in found.jobs
    assert (tmp_path / "said").read_text().split()[-2:] == ["-j", "4710,4712"]


@pytest.mark.parametrize(
    ("says", "unasked"),
    [
        ("slurm_load_jobs error: Invalid job id specified", False),
        ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)", True),
        ("", True),
    ],
)
def test_a_scheduler_that_does_not_answer_says_nothing_of_a_job(tmp_path: Path, says: str, unasked: bool) -> None:
    (tmp_path / "squeue").write_text(f"#!/bin/sh\necho '{says}' >&2\nexit 1\n")
    (tmp_path / "squeue").chmod(0o755)
    with running(tmp_path, "slurmd"), running(tmp_path, "rank", SLURM_JOB_ID="4712") as rank:
        found = PROCESSES.parse(looked(tmp_path, f"{BUS}, {rank}, 3 MiB"))
    assert (found.jobs, found.unasked) == (frozenset(), unasked)


def test_a_process_whose_parents_end_is_followed_to_the_last(tmp_path: Path) -> None:
    """The last parent before process 1 tells whether a container has a monitor: here there is none of a container's."""
    with running(tmp_path, "python3") as pid:
        said = looked(tmp_path, f"{BUS}, {pid}, 3 MiB")
    (row,) = [line for line in said.text.splitlines() if line.startswith("@of|")]
    under, mine, oldest = row.split("|")[3:]
    assert under == ""
    assert mine.strip() == " ".join(Path("/proc/self/cgroup").read_text().split())
    assert oldest.strip().startswith("0::/") or ":" in oldest


def said(*lines: str) -> dict[str, Output | str]:
    return {"gpu_processes": "".join(f"{line}\n" for line in lines) + "looked\n"}


ID = "4fa6e0f0c678" * 5 + "4fa6"
DOCKER, PODMAN = f"0::/system.slice/docker-{ID}.scope", f"0::/machine.slice/libpod-{ID}.scope"
SHIM, CONMON = "0::/system.slice/containerd.service", f"0::/machine.slice/libpod-conmon-{ID}.scope"
POD = f"12:devices:/kubepods/burstable/pod5e1b/{ID} 11:memory:/kubepods/burstable/pod5e1b/{ID}"
STEP = "0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0"
INFRA = f"0::/libpod_parent/{ID}/{ID[1:]}0", f"0::/libpod_parent/{ID}/conmon"
NODE = ("@slurmd", "@lives|7")
LIVES = f"S|{BUS}, 7, 9 MiB|python3"


def whose(
    job: str = "",
    cgroup: str = "0::/",
    oldest: str = "0::/init.scope",
    *more: str,
    name: str = "python3",
    under: str = "",
) -> dict[str, Output | str]:
    started = f"SLURM_JOB_ID={job}" if job else ""
    return said(LIVES.replace("python3", name), f"@of|7|{started}|{under}|{cgroup}|{oldest}", *more)


def used(mebibytes: int, **changed: Any) -> dict[str, Output | str]:
    """A GPU without a process on it, of whose memory so much is in use by both that tell it."""
    text = re.sub(r"(FB Memory Usage\n.*\n.*\n +Used +: )\d+", rf"\g<1>{mebibytes}", WELL)
    text = smi(text=f"{text.rstrip()}\n    Processes                             : None\n", **changed)
    return {"gpu_health": text, **said(f"@memory|{BUS}, {mebibytes}")}


def waits(before: str, after: str) -> tuple[str, ...]:
    """In D at both looks, having run so often."""
    row = f"D|{BUS}, 7, 9 MiB|a"
    return row, f"@runs|7|{before}", "@twice|", f"@twice|{row}", f"@twice|@runs|7|{after}"


def vgpu(mebibytes: int) -> dict[str, Output | str]:
    """As drivers before 510 tell it of a vGPU."""
    told = used(mebibytes, Virtualization_Mode="VGPU")
    text, count = re.subn(r"(FB Memory Usage\n.*\n) +Reserved .*\n", r"\1", str(told["gpu_health"]))
    assert count == 1
    return {**told, "gpu_health": text}


ANY = Health(left_processes="any")
ROWS = [
    Row("in a container with its shim", CHECK, None, whose("", DOCKER, SHIM), "pass"),
    Row("in a container with its conmon", CHECK, None, whose("", PODMAN, CONMON), "pass"),
    Row("in a pod of podman's without systemd", CHECK, None, whose("", *INFRA), "pass"),
    Row("a container without its shim", CHECK, None, whose("", DOCKER, DOCKER), "fail", "whose monitor (",
        "kill -KILL"),
    Row("of a pod, cgroup v1", CHECK, None, whose("", POD, POD), "fail", "is gone", "kill -KILL"),
    Row("which is let pass", CHECK, ANY, whose("", POD, POD), "pass"),
    Row("of a job whose step runs", CHECK, None, whose("4711", "0::/", "0::/", *NODE,
                                                       "@step|slurmstepd: [4711.batch] "), "pass"),
    Row("which places steps itself", CHECK, None,
        whose("4711", "0::/", "0::/", *NODE, "@step|slurmstepd: [4711.extern stepmgr] "), "pass"),
    Row("whose steps run elsewhere", CHECK, None, whose("4710", "0::/", "0::/", *NODE, "@queued|4710"), "pass"),
    Row("whose scheduler does not answer", CHECK, None, whose("4710", "0::/", "0::/", *NODE, "@unasked"),
        "skip", "squeue does not say whether the job runs", "squeue -j JOB"),
    Row("that a prolog or an epilog has started", CHECK, None, whose("4710", "0::/", "0::/", *NODE, under="1"), "pass"),
    Row("that has ended with its step", CHECK, None, whose("4710", "0::/", "0::/", "@slurmd"), "pass"),
    Row("a user's own MPS", CHECK, None, whose("4710", "0::/", "0::/", *NODE, name="nvidia-cuda-mps"), "fail",
        "Slurm's job 4710"),
    Row("of another job's", CHECK, None, whose("4710", "0::/", "0::/", *NODE, "@step|slurmstepd: [4711.batch] "),
        "fail", "started in Slurm's job 4710, of which no step runs here", "kill PID"),
    Row("by its cgroup", CHECK, None, whose("", STEP, STEP, *NODE), "fail", "Slurm's job 4711"),
    Row("no node of Slurm", CHECK, None, whose("4710"), "pass"),
    Row("memory without a process", CHECK, None, used(81000), "fail",
        "81000 MiB of 0000:19:00.0 are in use, and no process", "fuser -v"),
    Row("as much as a driver has", CHECK, None, used(612), "pass"),
    Row("so much that is let pass", CHECK, Health(stray_memory=90000), used(81000), "pass"),
    Row("not judged", CHECK, Health(stray_memory=0), used(81000), "pass"),
    Row("memory of the host itself", CHECK, None, used(81000, Addressing_Mode="ATS"), "pass"),
    Row("reserved, of a vGPU before 510", CHECK, None, vgpu(2134), "pass"),
    Row("of a vGPU", CHECK, None, used(2134, Virtualization_Mode="VGPU"), "fail", "2134 MiB"),
    Row("with a process that came since", CHECK, None, {**used(81000), **said(LIVES, f"@memory|{BUS}, 81000")}, "pass"),
    Row("memory that was looked at once", CHECK, None, {**used(81000), **said()}, "skip",
        "could not be read: 0000:19:00.0"),
    Row("memory that was given back since", CHECK, None, {**used(81000), **said(f"@memory|{BUS}, 4")}, "pass"),
    Row("all there", CHECK, None, {}, "pass", "processes on GPUs: 1"),
    Row("none", CHECK, None, said(), "pass", "no process"),
    Row(
        "a zombie",
        CHECK,
        None,
        said(f"Z|{BUS}, 7, 81000 MiB"),
        "fail",
        f"(pid 7) on {BUS}, 81000 MiB: a zombie",
        "ps -o",
    ),
    Row("gone", CHECK, None, said(f"|{BUS}, 7, 9 MiB|python3"), "fail", "the host has no such process", "restart it"),
    Row("gone, and named no more", CHECK, None, said(f"|{BUS}, 7, 9 MiB|", "@twice|"), "pass", "no process"),
    Row("gone, and named still", CHECK, None, said(f"|{BUS}, 7, 9 MiB|", "@twice|", f"@twice||{BUS}, 7, 9 MiB|"),
        "fail", "no such"),
    Row("waited for a disk", CHECK, None, said(f"D|{BUS}, 7, 9 MiB|a", "@twice|", f"@twice|S|{BUS}, 7, 9 MiB|a"),
        "pass", "1, all"),
    Row("waits for disks again and again", CHECK, None, said(*waits("12 3 ", "14 3 ")), "pass", "1, all there"),
    Row("waits for what does not come", CHECK, None, said(*waits("12 3 ", "12 3 ")), "fail", "hangs in the kernel",
        "restart it"),
    Row("too many to tell of all", CHECK, None, said(*(f"Z|{BUS}, {pid}, 9 MiB|a" for pid in range(2000))), "fail",
        "and 1980 more"),
    Row("hangs", CHECK, None, said(f"D|{BUS}, 7, 9 MiB|python3"), "fail", "hangs in the kernel", "restart it"),
    Row(
        "in a container",
        CHECK,
        None,
        said(f"|{BUS}, 7, 9 MiB|python3") | {"container": "docker\n"},
        "n/a",
        "cannot be seen",
    ),
]  # fmt: skip


@run_each("row", [pytest.param(row, id=row.name) for row in ROWS])
def test_processes(row: Row) -> None:
    judge(row)


@run_each(
    ("changed", "words"),
    [
        (whose("", DOCKER, DOCKER), "no: see what fails"),
        (whose("4710", "0::/", "0::/", *NODE), "no: see what fails"),
        (used(81000), "not until its GPUs are reset"),
        (said(f"Z|{BUS}, 7, 9 MiB|python3"), "not until it is restarted"),
        ({}, "yes"),
    ],
)
def test_a_host_with_what_is_left_is_not_fit(changed: dict[str, Output | str], words: str) -> None:
    """It may be that only a process is to be ended: the next job has no GPU until then."""
    outcome = ask(CHECK, None, **changed)
    result = Result(host="gpu1", check=CHECK, capability="health", status=outcome.status, action=outcome.action)
    (found,) = fitness([result])
    assert str(found) == words
