"""The unit of a process: by the host's modules in Python, and by the probes in shell."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gpuprov.facts.probes.host.systemd import UNIT_OF
from gpuprov.host_code.mig.units import find_unit
from tests.rows import run_each

V2 = "0::/init.scope"
IN_A_CONTAINER = "9:name=systemd:/machine.slice/libpod-1f.scope/init.scope\n0::/"
CASES = [
    (V2, "0::/system.slice/nvidia-dcgm.service", "nvidia-dcgm.service"),
    (V2, "0::/system.slice/system-gpuprov\\x2dmps.slice/gpuprov-mps@0.service", "gpuprov-mps@0.service"),
    (V2, "0::/user.slice/user-1000.slice/session-3.scope", "session-3.scope"),
    (
        V2,
        "0::/user.slice/user-1000.slice/user@1000.service/app.slice/nvidia-dcgm.service",
        "user@1000.service/nvidia-dcgm.service",
    ),
    (
        V2,
        "0::/user.slice/user-1000.slice/user@1000.service/x|nvidia-dcgm.service",
        "user@1000.service/x|nvidia-dcgm.service",
    ),
    (V2, "0::/system.slice/docker-1f.scope/system.slice/dcgm.service", "docker-1f.scope/dcgm.service"),
    (V2, "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-abc.scope", "cri-containerd-abc.scope"),
    (V2, "0::/system.slice/slurmd.service/job_7/step_0", "slurmd.service"),
    (
        IN_A_CONTAINER,
        "9:name=systemd:/machine.slice/libpod-1f.scope/system.slice/dcgm.service\n0::/",
        "dcgm.service",
    ),
    (IN_A_CONTAINER, "9:name=systemd:/machine.slice/libpod-1f.scopes/dcgm.service", "dcgm.service"),
    ("1:name=systemd:/init.scope", "2:cpu:/b.service\n1:name=systemd:/system.slice/a.service/inner\n0::/", "a.service"),
    ("", "0::/system.slice/a.service", "a.service"),
    (V2, "0::/", ""),
    (V2, "", ""),
]


@run_each(("first", "cgroup", "unit"), CASES)
def test_a_unit_of_a_users_or_a_containers_systemd_is_not_the_hosts(
    tmp_path: Path, first: str, cgroup: str, unit: str
) -> None:
    for pid, text in (("1", first), ("7", cgroup)):
        (tmp_path / "proc" / pid).mkdir(parents=True)
        (tmp_path / "proc" / pid / "cgroup").write_text(f"{text}\n")
    assert find_unit("7", str(tmp_path)) == unit
    script = f"{UNIT_OF.replace('/proc/1/', f'{tmp_path}/proc/1/')}unit_of {tmp_path}/proc/7/cgroup"
    for shell in (["sh", "-c"], ["bash", "-c"]):
        done = subprocess.run([*shell, script], capture_output=True, text=True, check=True)
        assert (done.stdout.rstrip("\n"), done.stderr) == (unit.replace("|", "_"), ""), "| ends a column of the probes"


def test_a_process_that_is_gone_is_no_process_without_a_unit(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        find_unit(7, str(tmp_path))
    assert find_unit(os.getpid()) == find_unit(str(os.getpid()))
