"""Slurm's own slurmd and slurmctld on the stand-in NVML: gres.conf as slurmd takes it, of GPUs, shards and MIG devices,
also after a change; a node that the health check drains, and does not give back."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpuprov.capabilities.at_boot import ABOVE
from gpuprov.capabilities.slurm.desired import HEALTH, MODULES
from gpuprov.catalog.xids import XID
from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.gpus import mig_reader
from gpuprov.facts.probes.host.slurm import parse
from gpuprov.host_code.at_boot import slurm as onhost
from tests.capabilities import at_boot
from tests.simulate.nvml_host import Host

SEARCH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
pytestmark = [
    pytest.mark.install,
    pytest.mark.skipif(not shutil.which("slurmctld", path=SEARCH), reason="slurmd and slurmctld are not installed"),
]
NODE = "n1"
CONF = """ClusterName=t
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
SlurmctldPort={port}
SlurmdPort={second}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
MpiDefault=none
GresTypes={kinds}
HealthCheckProgram={folder}/health.sh
HealthCheckInterval=1
NodeName={node} NodeAddr=127.0.0.1 CPUs=1 RealMemory=1 Gres={gres}
PartitionName=p Nodes=ALL Default=YES
"""


class Node:
    """A compute node below `folder`, with two H100 of the stand-in NVML. gpuprov's program and Slurm's are the real
    ones."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.host = folder, Host(folder / "gpus", "H100-SXM5-80GB", 2)
        self.wanted: dict[str, Any] = {
            "gres": "files",
            "type": "h100",
            "shards": 0,
            "count": 2,
            "xids": {"79": "reboot"},
            "xid": XID.pattern,
        }
        self.host.capabilities(0)
        self.host.capabilities(1)
        (self.host.library.parent / "libnvidia-ml.so.1").symlink_to(self.host.library.name)
        for name in ("state", "spool"):
            (folder / name).mkdir()
        for name in ("nvidia0", "nvidia1", "nvidia-uvm"):
            self.host.write(f"/dev/{name}", "")

    def here(self, text: str) -> str:
        """Move the paths of a text to this node's folders."""
        for name in ("/dev/nvidia", "/proc/driver/nvidia"):
            text = text.replace(name, f"{self.host.root}{name}")
        return text.replace(onhost.FOLDER, str(self.folder)).replace("/etc/gpuprov", str(self.folder))

    def environment(self) -> dict[str, str]:
        more = {
            "SLURM_CONF": f"{self.folder}/slurm.conf",
            "PATH": f"{self.folder}:{SEARCH}",
            "GPUPROV_SIM_ROOT": str(self.host.root),
        }
        return {**os.environ, **more, "LD_LIBRARY_PATH": str(self.host.library.parent)}

    def program(self, action: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run gpuprov's program for slurmd."""
        (self.folder / "slurm.json").write_text(json.dumps(self.wanted))
        (self.folder / "lib/slurm").mkdir(parents=True, exist_ok=True)
        shutil.copy(mig_reader.__file__, self.folder / "lib/slurm")
        return at_boot.run(self.folder, "slurm", MODULES, self.here, action, env={**self.environment(), **more})

    def configure(self, gres: str, kinds: str = "gpu") -> None:
        """Write slurm.conf, by which the node has these resources of these kinds."""
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            second.bind(("127.0.0.1", 0))
            ports = {"port": first.getsockname()[1], "second": second.getsockname()[1]}
        names = {"host": socket.gethostname().partition(".")[0], "user": getpass.getuser(), "node": NODE}
        (self.folder / "slurm.conf").write_text(
            CONF.format(**names, **ports, folder=self.folder, gres=gres, kinds=kinds)
        )

    def ask(self, *argv: str) -> str:
        done = subprocess.run(argv, env=self.environment(), capture_output=True, text=True, check=False, timeout=60)
        return done.stdout + done.stderr

    def gres(self) -> set[tuple[str, str, int, tuple[str, ...]]]:
        """What slurmd makes of its files, in the paths of a host."""
        said = self.ask("slurmd", "-N", NODE, "-G")
        rows = "".join(f"said|{line}\n" for line in said.replace(str(self.host.root), "").splitlines())
        found = parse(Output(rows))
        assert found.gres, said
        return {(one.name, one.kind, one.count, one.files) for one in found.gres if one.count}

    @contextmanager
    def running(self) -> Iterator[None]:
        """Have slurmctld and slurmd run."""
        daemons = (["slurmctld", "-D"], ["slurmd", "-D", "-N", NODE])
        children = [
            subprocess.Popen(argv, env=self.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for argv in daemons
        ]
        try:
            yield
        finally:
            for child in reversed(children):
                child.terminate()
                child.wait(30)

    def until(self, *words: str) -> str:
        """Wait until Slurm says this of the node; return what it says."""
        for _ in range(150):
            shown = self.ask("scontrol", "show", "node", NODE, "--oneliner")
            if all(word in shown for word in words):
                return shown
            time.sleep(0.2)
        raise AssertionError(f"{words} not in {shown}; {(self.folder / 'slurmd.log').read_text()[-2000:]}")

    def cut(self, gpu: int, *profiles: int) -> None:
        """Put a GPU into MIG mode, with an instance of each of these profiles."""
        with self.host.client() as client:
            handle = client.nvmlDeviceGetHandleByIndex(gpu)
            client.nvmlDeviceSetMigMode(handle, 1)
            for profile in profiles:
                info = client.nvmlDeviceGetGpuInstanceProfileInfo(handle, profile)
                instance = client.nvmlDeviceCreateGpuInstance(handle, info.id)
                whole = client.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, profile, 0)
                client.nvmlGpuInstanceCreateComputeInstance(instance, whole.id)
        for text in self.host.capabilities(gpu).values():
            self.host.write(f"/dev/nvidia-caps/nvidia-cap{text.split()[1]}", "")


@pytest.fixture(name="node")
def fixture_node(tmp_path: Path) -> Node:
    return Node(tmp_path)


WHOLE = {("gpu", "h100", 1, (f"/dev/nvidia{number}",)) for number in (0, 1)}


def test_whole_gpus_and_their_shards(node: Node) -> None:
    node.wanted["shards"] = 4
    done = node.program("gres")
    assert (done.returncode, done.stdout) == (0, f"wrote {node.folder}/gres.conf\n"), done
    assert node.program("gres").stdout == "", "a second run writes nothing"
    node.configure("gpu:h100:2,shard:8", "gpu,shard")
    assert node.gres() == WHOLE | {("shard", "h100", 4, (f"/dev/nvidia{number}",)) for number in (0, 1)}


def test_mig_devices_after_each_change(node: Node) -> None:
    node.program("gres")
    node.configure("gpu:h100:2")
    assert node.gres() == WHOLE
    node.cut(1, 2, 0)  # NVML's numbers of 3g.40gb and 1g.10gb
    assert node.program("gres").returncode == 0
    node.configure("gpu:h100:1,gpu:3g.40gb:1,gpu:1g.10gb:1")
    found = node.gres()
    assert {(name, kind, count) for name, kind, count, _ in found} == {
        ("gpu", kind, 1) for kind in ("h100", "3g.40gb", "1g.10gb")
    }
    files = [files for _, kind, _, files in found if kind != "h100"]
    assert {one[0] for one in files} == {"/dev/nvidia1"}
    assert len({name for one in files for name in one[1:]}) == 4, "two device files of its own for each"
    with node.running():
        assert "Gres=gpu:h100:1,gpu:3g.40gb:1,gpu:1g.10gb:1" in node.until("State=IDLE")
        job = node.ask("srun", "-N1", "--gres=gpu:1g.10gb:1", "sh", "-c", "echo GPUs=$SLURM_GPUS_ON_NODE")
        assert "GPUs=1" in job


def test_shard_among_the_types_has_this_slurmd_count_device_files(node: Node) -> None:
    """What slurm.gres names, and why `shards` is refused beside MIG."""
    node.cut(1, 0)
    node.program("gres")
    node.configure("gpu:h100:1,gpu:1g.10gb:1", "gpu,shard")
    if "22.05" in node.ask("slurmd", "-V"):
        assert len(node.gres()) == 4, "one GPU, and three files of one MIG device"


def test_a_gpu_that_is_missing_drains_the_node_and_its_return_does_not_undrain_it(node: Node) -> None:
    node.program("gres")
    node.configure("gpu:h100:2")
    names = ("LD_LIBRARY_PATH", "GPUPROV_SIM_ROOT", "SLURM_CONF")
    own = " ".join([*(f"{name}={node.environment()[name]}" for name in names), f"PYTHONPATH={node.folder}/lib"])
    assert HEALTH.count(f"PYTHONPATH={ABOVE}") == 1
    (node.folder / "health.sh").write_text(HEALTH.replace(f"PYTHONPATH={ABOVE}", own))
    (node.folder / "health.sh").chmod(0o755)
    started = time.monotonic()
    assert node.program("health").returncode == 0
    assert time.monotonic() - started < 2, "Slurm runs it on all nodes at once"
    with node.running():
        node.until("State=IDLE")
        node.wanted["count"] = 3
        (node.folder / "slurm.json").write_text(json.dumps(node.wanted))
        node.until("DRAIN", "Reason=gpuprov health: 2 of 3 GPUs")
        node.wanted["count"] = 2
        (node.folder / "slurm.json").write_text(json.dumps(node.wanted))
        time.sleep(3)
        node.until("DRAIN", "Reason=gpuprov health: 2 of 3 GPUs")


def test_a_node_that_somebody_else_drained_keeps_its_reason(node: Node) -> None:
    node.program("gres")
    node.configure("gpu:h100:2")
    (node.folder / "health.sh").write_text("#!/bin/sh\n")
    (node.folder / "health.sh").chmod(0o755)
    with node.running():
        node.until("State=IDLE")
        node.ask("scontrol", "update", f"NodeName={NODE}", "State=DRAIN", "Reason=bad HCA")
        node.wanted["count"] = 3
        assert node.program("health", SLURMD_NODENAME=NODE).stderr == "slurm: 2 of 3 GPUs\n"
        assert "Reason=bad HCA" in node.until("DRAIN")


def test_a_prolog_fails_and_leaves_the_drain_to_slurm(node: Node) -> None:
    node.configure("gpu:h100:2")
    node.wanted["count"] = 3
    done = node.program("health", SLURM_SCRIPT_CONTEXT="prolog_slurmd")
    assert (done.returncode, done.stderr) == (1, "slurm: 2 of 3 GPUs\n"), "without asking a slurmctld that does not run"
