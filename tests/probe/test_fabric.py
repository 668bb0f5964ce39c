"""The fabric's probes: what is printed on a host, as facts."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from gpuprov.probe import fabric
from gpuprov.probe.base import Output, ProbeFailed
from gpuprov.probe.fabric import GpuFabric
from tests.probe import captured


def test_a_live_daemon_on_a_simulated_host() -> None:
    daemon = fabric.parse_daemon(captured("fabric_manager", "alive"))
    process = daemon.process("nv-fabricmanager")
    assert process
    assert (
        process.command == "/usr/bin/python3 /usr/bin/nv-fabricmanager -c /usr/share/nvidia/nvswitch/fabricmanager.cfg"
    )
    assert daemon.configured < process.started
    assert daemon.installed < process.started
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


def test_a_start_time_that_nobody_can_tell_is_no_fact() -> None:
    stat = "S 1 " + "0 " * 17 + "5000 0"
    with pytest.raises(ProbeFailed, match="when the daemon was started"):
        fabric.parse_daemon(Output(f"clock||100.0|100\nprocess|7|{stat}|nv-fabricmanager\n"))


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


def test_a_gpu_that_is_not_registered_and_one_that_never_is() -> None:
    text = "00000000:19:00.0, state  In Progress, status N/A\n00000000:3B:00.0, [N/A], [N/A]\n"
    assert fabric.parse_state(Output(text)) == (
        GpuFabric("0000:19:00.0", "In Progress", "N/A"),
        GpuFabric("0000:3b:00.0", "[N/A]", "[N/A]"),
    )
    assert fabric.parse_state(Output('Field "fabric.state" is not a valid field to query.\n')) == ()


def test_bridges() -> None:
    assert fabric.parse_bridges(Output("0000:05:00.0\n0000:06:00.0\n")) == ("0000:05:00.0", "0000:06:00.0")


@pytest.mark.skipif(not shutil.which("awk"), reason="the snippet needs awk")
def test_a_driver_that_does_not_know_the_fields_is_asked_in_the_long_form(tmp_path: Path) -> None:
    smi = tmp_path / "nvidia-smi"
    long = "GPU 00000000:19:00.0\n    Product Name   : x\n    Fabric\n        State   : Completed\n        Status   : Success\n"
    long += "    ECC Mode\n        State  : no\n"
    smi.write_text(f"#!/bin/sh\n[ $1 = -q ] || {{ echo 'Field is not valid'; exit 2; }}\nprintf '{long}'\n")
    smi.chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", "-c", fabric.STATE.script],
        capture_output=True,
        check=True,
        text=True,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
    )
    assert fabric.parse_state(Output(done.stdout)) == (GpuFabric("0000:19:00.0", "Completed", "Success"),)
