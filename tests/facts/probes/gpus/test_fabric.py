"""The fabric's probes: what is printed on a host, as facts."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.gpus import fabric
from gpuprov.facts.probes.gpus.fabric import GpuFabric
from tests.facts.probes import captured, published, run_well

AWK = re.search(r"awk '([^']*)'", fabric.STATE.script)[1]  # type: ignore[index]


def test_a_live_daemon_on_a_simulated_host() -> None:
    daemon = fabric.parse_daemon(captured("fabric_manager", "alive"))
    process = daemon.process("nv-fabricmanager")
    assert process
    assert (
        process.command == "/usr/bin/python3 /usr/bin/nv-fabricmanager -c /usr/share/nvidia/nvswitch/fabricmanager.cfg"
    )
    assert daemon.configured
    assert (daemon.version, daemon.settings["FABRIC_MODE"]) == ("535.309.01", "0")
    assert daemon.process("nvlsm") is None
    assert any("Successfully configured" in line for line in daemon.log)


def test_a_dead_daemon_says_why() -> None:
    daemon = fabric.parse_daemon(captured("fabric_manager", "mismatch"))
    assert daemon.processes == ()
    assert any("don't match with driver version" in line for line in daemon.log)


def test_a_host_without() -> None:
    assert fabric.parse_daemon(Output("clock|1.5|1.5|100\n")) == fabric.Daemon()
    assert fabric.parse_daemon(Output("clock|||\nprocess|1|S 1|x\nprogram|\n")) == fabric.Daemon()


def test_zombies_are_not_alive() -> None:
    stat = "Z 1 " + "0 " * 17 + "5000 0"
    assert fabric.parse_daemon(Output(f"clock|2000.0|100.0|100\nprocess|7|{stat}|nv-fabricmanager\n")).processes == ()


def test_values_may_be_quoted_and_commented() -> None:
    told = fabric.parse_daemon(Output('setting|LOG_FILE_NAME="/var/log/a|b.log"\nsetting|LOG_LEVEL=4 # all\n'))
    assert told.settings == {"LOG_FILE_NAME": "/var/log/a|b.log", "LOG_LEVEL": "4"}


@pytest.mark.parametrize("case", ["query", "long"])
def test_both_forms_of_the_state_say_the_same(case: str) -> None:
    states = fabric.parse_state(captured("fabric_state", case))
    assert states[0] == GpuFabric("0001:10:00.0", "Completed", "Success")
    assert len(states) == 8


def test_what_real_hosts_print_of_health_and_clique() -> None:
    """The long form of three branches, each of which adds lines; the query form has none of them."""

    def of(case: str) -> GpuFabric:
        text = "GPU 00000000:19:00.0\n" + published(case, "nvidia-smi-q-block").text
        kept = subprocess.run(["awk", AWK], input=text, capture_output=True, text=True, check=True).stdout
        return fabric.parse_state(Output(kept))[0]

    sick = of("h200-fabric-unhealthy")
    assert (sick.state, sick.status, sick.clique) == ("Completed", "Success", "2")
    assert (sick.cluster, sick.ill()) == (
        "00000001-0000-0000-0000-000000000000",
        ("Health Unhealthy", "Bandwidth: Full"),
    )
    poor = of("azure-fabric-insufficient")
    assert (poor.status, poor.clique, poor.ill()) == ("Insufficient Resources", "0", ())
    new = of("fabric-in-progress-580-159")
    assert (new.state, new.clique, new.ill()) == ("In Progress", "N/A", ())
    assert new.health["Incorrect Configuration"] == "N/A"
    early = GpuFabric("b", "Completed", "Success", health={"Bandwidth": "Degraded", "Route Unhealthy": "False"})
    assert early.ill() == ("Bandwidth: Degraded",)
    well = GpuFabric("b", "Completed", "Success", health={"Summary": "Healthy", "Bandwidth": "Full"})
    assert well.ill() == ()
    less = GpuFabric("b", "Completed", "Success", health={"Summary": "Limited Capacity"})
    assert less.ill() == ("Health Limited Capacity",)


def test_a_gpu_that_is_not_registered_and_one_that_never_is() -> None:
    text = "00000000:19:00.0, state  In Progress, status N/A\n00000000:3B:00.0, [N/A], [N/A]\n"
    assert fabric.parse_state(Output(text)) == (
        GpuFabric("0000:19:00.0", "In Progress", "N/A"),
        GpuFabric("0000:3b:00.0", "[N/A]", "[N/A]"),
    )
    assert fabric.parse_state(Output('Field "fabric.state" is not a valid field to query.\n')) == ()


def test_bridges() -> None:
    assert fabric.parse_bridges(Output("0000:05:00.0\n0000:06:00.0\n")) == ("0000:05:00.0", "0000:06:00.0")


def run_state(folder: Path, query: str, long: str) -> str:
    """What the snippet prints where nvidia-smi answers the query form and the long form so; an empty answer is a
    failure."""
    smi = f"[ $1 = -q ] && {{ printf '{long}'; exit 0; }}\n"
    smi += f"[ -n '{query}' ] || {{ echo 'Field is not valid'; exit 2; }}\nprintf '{query}'"
    return run_well(fabric.STATE.script, folder, {"nvidia-smi": smi}).text


def test_the_long_form_is_asked_of_gpus_that_are_registered_only(tmp_path: Path) -> None:
    line = "00000000:19:00.0, state  {}, status {}\\n"
    long = (
        "GPU 00000000:19:00.0\\n    Fabric\\n        State   : {}\\n        Health\\n            Summary : Unhealthy\\n"
    )
    states = fabric.parse_state(
        Output(run_state(tmp_path, line.format("Completed", "Success"), long.format("Completed")))
    )
    assert states[0].ill() == ("Health Unhealthy",)
    states = fabric.parse_state(Output(run_state(tmp_path, line.format("In Progress", "N/A"), long.format("wrong"))))
    assert states == (GpuFabric("0000:19:00.0", "In Progress", "N/A"),)
    states = fabric.parse_state(Output(run_state(tmp_path, line.format("Completed", "Success"), "nothing")))
    assert states == (GpuFabric("0000:19:00.0", "Completed", "Success"),)
    assert fabric.parse_state(Output(run_state(tmp_path, "", long.format("Completed"))))[0].state == "Completed"


def test_what_the_kernel_has_for_bridged_switches() -> None:
    found = fabric.parse_subnet_kernel(Output("module|mlx5_core\nmodule|ib_umad\ndevice|mlx5_4\n"))
    assert found == fabric.SubnetKernel(frozenset({"mlx5_core", "ib_umad"}), ("mlx5_4",))
    assert fabric.parse_subnet_kernel(Output("")) == fabric.SubnetKernel()


@pytest.mark.skipif(not shutil.which("awk"), reason="the snippet needs awk")
def test_a_driver_that_does_not_know_the_fields_is_asked_in_the_long_form(tmp_path: Path) -> None:
    long = (
        "GPU 00000000:19:00.0\\n    Product Name   : x\\n    Fabric\\n        State   : Completed\\n        "
        "Status   : Success\\n"
    )
    long += "    ECC Mode\\n        State  : no\\n"
    assert fabric.parse_state(Output(run_state(tmp_path, "", long))) == (
        GpuFabric("0000:19:00.0", "Completed", "Success"),
    )


def test_of_its_own_log_counts_what_this_run_wrote(tmp_path: Path) -> None:
    """The log goes on over all runs. The lines are of gpud's tests, beside one of an earlier year."""
    log = tmp_path / "fabric manager.log"
    said = "[ERROR] [tid 841] detected NVSwitch fatal error 20034 on fid 0 on NVSwitch pci bus id 00000000:86:00.0"
    log.write_text(
        f"[Jul 23 2024 07:53:55] {said}\n[Feb 25 2099 13:59:45] [INFO] [tid 1803] Received an inband message\n"
        f"[Jul 23 2099 07:53:55] {said.replace('fatal error 20034', 'non-fatal error 12028')}\n"
        "no time, detected NVSwitch fatal error 1\n"
    )
    config = tmp_path / "fabricmanager.cfg"
    config.write_text(f'LOG_LEVEL=4\nLOG_FILE_NAME="{log}" # as ever\n')
    stub = tmp_path / "systemctl"
    stub.write_text(f"#!/bin/sh\ncase $* in *MainPID*) echo MainPID={os.getpid()};; esac\n")
    stub.chmod(0o755)
    script = fabric.DAEMON.script.replace("/usr/share/nvidia/nvswitch/fabricmanager.cfg", str(config))
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["sh", "-c", script], env=environment, capture_output=True, text=True, check=True)
    (found,) = fabric.parse_daemon(Output(done.stdout)).errors
    assert found.startswith("detected NVSwitch non-fatal error 12028 on fid 0")
