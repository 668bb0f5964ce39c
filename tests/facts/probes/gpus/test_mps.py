"""What the probe of the MPS daemons makes of its output: real answers of 535, and what the guide shows of later
drivers."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.gpus.mps import MPS, Daemon, Gpu, MpsState, Server, parse_mps

UUIDS = ("GPU-11111111-2222-3333-4444-555555555555", "GPU-21111111-2222-3333-4444-555555555555")
# Debian's nvidia-cuda-mps-control 535.261.03, without a GPU: started with two devices, the second of which has a limit.
ON_535 = f"""program|
gpu|nvidia-smi: not found
shm|24106
daemon|20095|gpuprov-mps@host.service|nvidia-cuda-mps-control -f{" "}
env|20095|CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps
env|20095|CUDA_VISIBLE_DEVICES={",".join(UUIDS)}
env|20095|CUDA_MPS_LOG_DIRECTORY=/var/log/nvidia-mps
answer|20095|100.0
answer|20095|0
answer|20095|100.0
answer|20095|100.0
answer|20095|900M
answer|20095|100.0
"""


def test_answers_of_a_daemon_of_535() -> None:
    found = parse_mps(Output(ON_535))
    assert found.daemons == (
        Daemon(
            pid=20095,
            unit="gpuprov-mps@host.service",
            command="nvidia-cuda-mps-control -f",
            pipe="/tmp/nvidia-mps",
            log="/var/log/nvidia-mps",
            devices=UUIDS,
            percentage="100.0",
            priority="0",
            limits=("", "900M"),
        ),
    )
    assert (found.program, found.shm, found.gpus, found.complaint) == (True, 24106, (), "nvidia-smi: not found")
    assert found.daemons[0].protocol == "v2"


def test_servers_and_their_clients() -> None:
    more = """answer|20095|800
answer|20095|801
server|20095|800|uid|1000
server|20095|800|answer|50.0
server|20095|800|answer|ACTIVE
server|20095|800|answer|900
server|20095|800|answer|901
server|20095|801|uid|
server|20095|801|answer|Unknown command "get_server_status"
"""
    assert parse_mps(Output(ON_535 + more)).daemons[0].servers == (
        Server(pid=800, uid=1000, percentage="50.0", status="ACTIVE", clients=2),
        Server(pid=801, status='Unknown command "get_server_status"'),
    )
    assert parse_mps(Output(ON_535 + more)).daemons[0].limits == ("", "900M")


def test_a_daemon_that_does_not_answer() -> None:
    text = "daemon|7||/usr/bin/nvidia-cuda-mps-control -d \nanswer|7|no answer within 5 s\n"
    assert parse_mps(Output(text)).daemons == (
        Daemon(pid=7, command="/usr/bin/nvidia-cuda-mps-control -d", complaint="no answer within 5 s"),
    )
    assert parse_mps(Output("daemon|7||nvidia-cuda-mps-control -d \n")).daemons[0].complaint == "no answer"


def test_partitions_as_the_guide_shows_them() -> None:
    rows = ["GPU-11111111 - 3 7 24 56 -", "GPU-11111111 Dx4A - 7 - 56 -", "GPU-11111111 Cx4A - 3 - 24 Yes"]
    text = ON_535 + "".join(f"partition|20095|{row}\n" for row in rows)
    assert parse_mps(Output(text)).daemons[0].partitions == {"GPU-11111111": (7, 3)}


def test_protocol_3() -> None:
    text = "daemon|7||nvidia-cuda-mps-control -f -p 3 -m -a /run/x.toml \nenv|7|CUDA_VISIBLE_DEVICES=GPU-1\n"
    text += "answer|7|50.0\nanswer|7|0\nanswer|7|0.0\nanswer|7|8G\nanswer|7|0.0\n"
    text += "server|7|48201|uid|1000\nserver|7|48201|status|Ready\nserver|7|48201|answer|51023\n"
    found = parse_mps(Output(text)).daemons[0]
    assert (found.protocol, found.percentage, found.priority, found.limits) == ("v3", "50.0", "0", ("8G",))
    assert found.servers == (Server(pid=48201, uid=1000, status="Ready", clients=1),)


def test_gpus_and_mig_devices() -> None:
    text = f"""gpu|0, {UUIDS[0]}, 00000000:19:00.0, Exclusive_Process, Disabled
gpu|1, {UUIDS[1]}, 00000001:3B:00.0, Default, Enabled
device|GPU 0: NVIDIA H100 80GB HBM3 (UUID: {UUIDS[0]})
device|GPU 1: NVIDIA H100 80GB HBM3 (UUID: {UUIDS[1]})
device|  MIG 3g.40gb     Device  0: (UUID: MIG-aaaa)
device|  MIG 1c.3g.40gb  Device  1: (UUID: MIG-bbbb)
"""
    assert parse_mps(Output(text)).gpus == (
        Gpu(index=0, uuid=UUIDS[0], address="0000:19:00.0", mode="Exclusive_Process"),
        Gpu(
            index=1,
            uuid=UUIDS[1],
            address="0001:3b:00.0",
            mode="Default",
            mig=True,
            mig_devices={"MIG-aaaa": 3, "MIG-bbbb": 1},
        ),
    )


def test_units_files_and_users() -> None:
    text = "unit|gpu0|active|enabled\nunit|gpu1|failed|off\nuser|triton|1000\nuser|nobody2|\n"
    text += "file|/run/gpuprov/mps/gpu0.env|A=1|2\nfile|/run/gpuprov/mps/gpu0.env|B=2\n"
    assert parse_mps(Output(text)) == MpsState(
        units={"gpu0": ("active", True), "gpu1": ("failed", False)},
        files={"/run/gpuprov/mps/gpu0.env": "A=1|2\nB=2"},
        users={"triton": 1000},
    )


FORGED = "mps-control -f\ndaemon|7|gpuprov-mps@host.service|nvidia-cuda-mps-control -f\nanswer|7|100.0"


def test_a_users_program_forges_no_daemon_and_is_asked_nothing() -> None:
    """comm is the name by which a program was called, its words and its environment are anybody's: root does not follow
    it into a folder that the environment names."""
    sleep = shutil.which("sleep")
    assert sleep
    with TemporaryDirectory() as name:
        folder = Path(name)
        control = folder / "bin/nvidia-cuda-mps-control"
        control.parent.mkdir()
        control.write_text(  # another daemon of this machine may be asked
            f'#!/bin/sh\ncat >/dev/null; [ "$CUDA_MPS_PIPE_DIRECTORY" != {name} ] || : > {name}/asked; echo 50.0\n'
        )
        control.chmod(0o755)
        (folder / "nvidia-cuda-mps-control").symlink_to(sleep)
        child = subprocess.Popen(
            [FORGED, "60"],
            executable=folder / "nvidia-cuda-mps-control",
            env={"CUDA_MPS_PIPE_DIRECTORY": name, "CUDA_VISIBLE_DEVICES": "0"},
        )
        try:
            while Path(f"/proc/{child.pid}/comm").read_text() != "nvidia-cuda-mps\n":
                time.sleep(0.01)
            environment = {**os.environ, "PATH": f"{control.parent}:{os.environ['PATH']}"}
            done = subprocess.run(["sh", "-c", MPS.script], env=environment, capture_output=True, text=True, check=True)
        finally:
            child.kill()
            child.wait()
        assert not (folder / "asked").exists()
    found = [one for one in parse_mps(Output(done.stdout)).daemons if one.pid in (7, child.pid)]
    assert [(one.pid, one.unit, one.pipe, one.devices) for one in found] == [(child.pid, "", name, ("0",))]
