"""The program that sets RoCE ports at boot, run on folders that look like sysfs and configfs: what it sets, and what it
refuses."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpuprov.capabilities.rdma.roce.desired import MODULES
from tests.capabilities import at_boot
from tests.capabilities.roce_host import LINES, bond, device, environment, here, put, read, second
from tests.rows import run_each

pytestmark = pytest.mark.install

CONFIG = "\n".join(LINES)


def run(
    root: Path, *words: str, config: str = CONFIG, ofed: bool = True, before: str = "", **programs: str
) -> subprocess.CompletedProcess[str]:
    put(root, {"/etc/gpuprov/roce.conf": config})
    env = environment(root, ofed=ofed, **programs)
    return at_boot.run(root, "rdma", MODULES, lambda text: here(root, text), *words, env=env, before=before)


def test_it_sets_what_differs_and_reads_back(tmp_path: Path) -> None:
    device(tmp_path)
    asked = CONFIG.replace("set tos 106", "set tos 104")
    done = run(tmp_path, "apply", config=asked)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "mlx5_0 port 1 (ens1f0np0): mtu 1500 -> 4200",
        "mlx5_0 port 1 (ens1f0np0): trust pcp -> dscp",
        "mlx5_0 port 1 (ens1f0np0): dscp.26 by PCP -> 3",
        "mlx5_0 port 1 (ens1f0np0): pfc none -> 3",
        "mlx5_0 port 1 (ens1f0np0): tos 0 -> 104",
        "mlx5_0 port 1 (ens1f0np0): traffic_class unset -> 106",
        "mlx5_0 port 1 (ens1f0np0): ecn 0,1,2,3,4,5,6,7 -> 3",
    ]
    done = run(tmp_path, "apply", config=asked)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), "a second run changes nothing"
    shown = read(tmp_path)
    assert "value|mlx5_0|1|dscp.26|3" in shown
    assert "value|mlx5_0|1|dscp.48|6" in shown, "what is not asked for is left"


def test_every_port_of_a_bond_is_set(tmp_path: Path) -> None:
    """What is the device's is set once: it is RoCE LAG's one RDMA device."""
    device(tmp_path)
    bond(tmp_path, "ens1f0np0", "ens1f1np1")
    second(tmp_path, "ens1f1np1", "0000:3b:00.1")
    asked = "set trust dscp\nset pfc 3\nset tos 106\nset ecn 3\nset cnp_dscp 46"
    done = run(tmp_path, "apply", config=asked)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "mlx5_0 port 1 (ens1f0np0): trust pcp -> dscp",
        "mlx5_0 port 1 (ens1f0np0): pfc none -> 3",
        "mlx5_0 port 1 (ens1f0np0): tos 0 -> 106",
        "mlx5_0 port 1 (ens1f0np0): ecn 0,1,2,3,4,5,6,7 -> 3",
        "mlx5_0 port 1 (ens1f0np0): cnp_dscp 48 -> 46",
        "mlx5_0 port 1 (ens1f1np1): trust pcp -> dscp",
        "mlx5_0 port 1 (ens1f1np1): pfc none -> 3",
        "mlx5_0 port 1 (ens1f1np1): ecn 0,1,2,3,4,5,6,7 -> 3",
        "mlx5_0 port 1 (ens1f1np1): cnp_dscp 48 -> 46",
    ]
    done = run(tmp_path, "apply", config=asked)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_map_that_nothing_sets_is_not_taken_for_one_that_is_off(tmp_path: Path) -> None:
    device(tmp_path, ofed=False)
    done = run(tmp_path, "apply", config="set dscp.26 3", ofed=False, dcb="exit 1", mlnx_qos="exit 1")
    assert "dscp.26 is not shown, expected 3" in done.stderr


def test_what_it_changed_is_told(tmp_path: Path) -> None:
    device(tmp_path)
    done = run(tmp_path, "apply", "5", config="set pfc 3,4\nset mode v1\nset mtu 9000")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "mlx5_0 port 1 (ens1f0np0): pfc none -> 3,4",
        "mlx5_0 port 1 (ens1f0np0): mode v2 -> v1",
        "mlx5_0 port 1 (ens1f0np0): mtu 1500 -> 9000",
    ]
    done = run(
        tmp_path, "apply", config="set pfc none\nset ecn none\nset trust pcp\nset cnp_dscp 4\nset cnp_802p_prio 0"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert {"value|mlx5_0|1|pfc|none", "value|mlx5_0|1|ecn|none", "value|mlx5_0|1|cnp_dscp|4"} <= set(read(tmp_path))


def test_with_the_kernels_own_drivers(tmp_path: Path) -> None:
    device(tmp_path, ofed=False)
    asked = (
        CONFIG.replace("set traffic_class 106\n", "").replace("set ecn 3\n", "").replace("cnp_dscp 48", "cnp_dscp 46")
    )
    done = run(tmp_path, "apply", config=asked, ofed=False)
    assert (done.returncode, done.stderr) == (0, "")
    shown = read(tmp_path, ofed=False)
    for line in ("trust|dscp", "dscp.26|3", "dscp.48|6", "dscp.25|3", "pfc|3", "tos|106", "cnp_dscp|46"):
        assert f"value|mlx5_0|1|{line}" in shown
    done = run(tmp_path, "apply", config="set trust pcp\nset pfc none", ofed=False)
    assert (done.returncode, done.stderr) == (0, "")
    done = run(tmp_path, "apply", config="set ecn 3\nset traffic_class 106", ofed=False)
    assert done.returncode == 1
    assert "ecn is not shown, expected 3 (" in done.stderr
    assert "traffic_class is not shown, expected 106 (" in done.stderr


def test_a_folder_of_rdma_cm_that_it_made_is_gone_again(tmp_path: Path) -> None:
    device(tmp_path, ofed=False)
    folder, place = tmp_path / "sys/kernel/config/rdma_cm", "/sys/kernel/config/rdma_cm"
    # The kernel makes ports/1 in a new folder; here mkdir does.
    real = f'mkdir -p "$1/ports/1"; cp {place}/kept/* "$1/ports/1"'
    gone = f'cp "$1"/ports/1/* {place}/kept; rm -r "$1"'
    (folder / "mlx5_0/ports/1").rename(folder / "kept")
    (folder / "mlx5_0/ports").rmdir()
    (folder / "mlx5_0").rmdir()
    script = {"mkdir": f'case $1 in *rdma_cm*) ;; *) exec /bin/mkdir "$@" ;; esac\n{real}', "rmdir": gone}
    called = """import os, subprocess
os.mkdir = lambda path: os.path.isdir(path) and os.listdir("") or subprocess.check_call(["mkdir", path])
os.rmdir = lambda path: subprocess.check_call(["rmdir", path])"""
    done = run(tmp_path, "apply", config="set tos 106\nset mode v1", ofed=False, before=called, **script)
    assert (done.returncode, done.stderr) == (0, "")
    assert (folder / "kept/default_roce_tos").read_text() == "106\n"
    assert (folder / "kept/default_roce_mode").read_text() == "IB/RoCE v1\n"
    assert not (folder / "mlx5_0").exists()


@run_each(
    ("chosen", "lost"),
    [
        ("", ""),
        ("device pci=5e:00.0", ""),
        ("device netdev=b8:3f:d2:00:00:5e", ""),
        ("device driver=mlx5_core netdev=bond0", ""),
        ("device driver=bnxt_en", "no RoCE port of driver bnxt_en"),
        ("device pci=5e:00.0\ndevice pci=5f:00.0", "no RoCE port of pci 5f:00.0"),
        ("count 3", "2 of 3 RoCE devices"),
        ("count 2", ""),
    ],
)
def test_all_ports_of_the_devices_that_are_meant_are_set(tmp_path: Path, chosen: str, lost: str) -> None:
    """A bond is known by its own name, too, and a device by one of its two ports."""
    device(tmp_path)
    device(tmp_path, "mlx5_1", "ens2", "0000:5e:00.0")
    device(tmp_path, "erdma_0", "eth0", "0000:00:06.0", driver="erdma")
    device(tmp_path, "efa_0", "eth1", "0000:00:07.0", driver="efa")
    device(tmp_path, "ibp1s0", "ib0", "0000:01:00.0", layer="InfiniBand")
    put(tmp_path / "sys/class/infiniband/mlx5_1/ports", {"1/gid_attrs/ndevs/0": "bond0", "2/link_layer": "Ethernet"})
    put(tmp_path / "sys/class/net/bond0", {"bonding/slaves": "ens2"})
    put(tmp_path / "sys/kernel/config/rdma_cm/mlx5_1/ports/2", {"default_roce_tos": "0"})
    done = run(tmp_path, "apply", config=f"{chosen}\nset tos 106", cma_roce_tos="exit 1")
    told = [part.rpartition(" (")[0] for part in done.stderr.strip().removeprefix("roce: ").split("; ")]
    ports = [f"mlx5_1 port {number}" for number in ("1 (ens2)", "2 (ens2)")]
    everything = chosen.startswith("count") or not chosen
    wanted = [] if chosen == "device driver=bnxt_en" else ["mlx5_0 port 1 (ens1f0np0)"] * everything + ports
    assert [one for one in told if "tos is" in one] == [f"{one}: tos is 0, expected 106" for one in wanted]
    assert done.stderr.startswith(f"roce: {lost}")
    assert ("RoCE" in done.stderr) == bool(lost)


@run_each(
    ("config", "programs", "said"),
    [
        ("set pfc 3", {"mlnx_qos": "echo mlnx_qos: Error setting pfc; exit 1"},
         "pfc is not shown, expected 3 (mlnx_qos: Error setting pfc)"),
        ("set mtu 9000", {"ip": "echo RTNETLINK answers: Invalid argument >&2; exit 2"},
         "mlx5_0 port 1 (ens1f0np0): mtu is 1500, expected 9000 (RTNETLINK answers: Invalid argument)"),
        ("set tos 106", {"cma_roce_tos": "echo 106"}, "tos is 0, expected 106"),
        ("device pci=0000:5e:00.0\nset tos 106", {}, "no RoCE port of pci 0000:5e:00.0"),
        ("count 2\nset tos 0", {}, "1 of 2 RoCE devices"),
    ],
)  # fmt: skip
def test_what_does_not_come_true_is_told(tmp_path: Path, config: str, programs: dict[str, Any], said: str) -> None:
    device(tmp_path)
    done = run(tmp_path, "apply", "3", config=config, **programs)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("roce: ")
    assert said in line


def test_a_port_without_a_network_interface(tmp_path: Path) -> None:
    device(tmp_path)
    for file in (
        tmp_path / "sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/1",
        tmp_path / "sys/devices/0000:3b:00.0/net/ens1f0np0",
    ):
        file.unlink() if file.is_file() else file.rmdir()  # fmt: skip
    done = run(tmp_path, "apply", config="set pfc 3")
    assert "mlx5_0 port 1: pfc is not shown, expected 3 (the port has no network interface)" in done.stderr


def test_no_device_at_all(tmp_path: Path) -> None:
    done = run(tmp_path, "apply", "2")
    assert (done.returncode, done.stderr) == (1, "roce: no RoCE port\n")


def test_usage_and_a_configuration_without_settings(tmp_path: Path) -> None:
    for words in ((), ("boot",)):
        assert run(tmp_path, *words).stderr == "roce: usage: roce apply [SECONDS]\n"
    done = run(tmp_path, "apply", config="device pci=0000:3b:00.0")
    assert done.returncode == 1
    assert "has no settings" in done.stderr
