"""Links that go down and come back, as the journal tells them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gpuprov.facts.probes.base import Output, ProbeFailed
from gpuprov.facts.probes.rdma.link_flaps import LINK_FLAPS, parse
from tests.here import program

NOW = 1_763_900_000
KERNEL = """1763890000.000001 gpu1 kernel: mlx5_core 0000:01:00.0: firmware version: 20.27.446
1763890005.203057 gpu1 kernel: mlx5_core 0000:01:00.0 enp1s0f0np0: Link down
1763890008.1 gpu1 kernel: mlx5_core 0000:01:00.0 enp1s0f0np0: Link up
1763890100.1 gpu1 kernel: mlx5_core 0000:01:00.0 enp1s0f0np0: Link down
1763890101.1 gpu1 kernel: mlx5_core[4711]: segfault at 0 ip 0 sp 0 error 4 in enp1s0f0np0: Link up
1763890130.1 gpu1 kernel: mlx5_core 0000:01:00.0 enp1s0f0np0: Link up
"""
"""https://github.com/torvalds/linux/blob/master/drivers/net/ethernet/mellanox/mlx5/core/en_main.c; and a program of a
user's."""
DAEMONS = """1763890007.5 gpu1 systemd-networkd[2666]: enp1s0f0np0: Gained carrier
1763890007.6 gpu1 systemd-networkd[2666]: ib1: Gained carrier
1763890100.5 gpu1 systemd-networkd[2666]: enp1s0f0np0: Lost carrier
1763890130.5 gpu1 systemd-networkd[2666]: enp1s0f0np0: Gained carrier
1763890200.1 gpu1 systemd-networkd[2666]: ib1: Link DOWN
1763890200.1 gpu1 systemd-networkd[2666]: ib1: Lost carrier
1763890230.1 gpu1 systemd-networkd[2666]: ib1: Gained carrier
1763890009.1 gpu1 NetworkManager[99]: <info>  [1763890009.1023] device (ib0): carrier: link connected
1763890300.1 gpu1 NetworkManager[99]: <info>  [1763890300.1023] device (ib0): carrier: link disconnected (deferring action)
1763890330.1 gpu1 NetworkManager[99]: <info>  [1763890330.1023] device (ib0): carrier: link connected
1763890331.1 gpu1 NetworkManager[99]: <info>  [1763890331.1023] manager: NetworkManager state is now CONNECTED_GLOBAL
1763890340.1 gpu1 NetworkManager[99]: <info>  [1763890340.1023] device (ib0): carrier: link connected
1763890350.1 gpu1 NetworkManager[99]: <info>  [1763890350.1023] manager: (ib0): new InfiniBand device (/org/freedesktop/7)
1763890351.1 gpu1 NetworkManager[99]: <info>  [1763890351.1023] device (ib0): carrier: link connected
"""
JOURNALCTL = """case "$*" in *_TRANSPORT=kernel*) cat "$DATA/kernel";; *_SYSTEMD_UNIT=*) cat "$DATA/daemons";; *) echo 1;; esac
"""


def test_the_script_over_a_tree_and_a_journal(tmp_path: Path) -> None:
    for device, interface in (
        ("mlx5_0", "enp1s0f0np0"),
        ("mlx5_1", "ib0"),
        ("mlx5_2", "ib1"),
        ("mlx5_3", "vf0"),
        ("efa_0", ""),
    ):
        (tmp_path / "class/infiniband" / device / "device" / (f"net/{interface}" if interface else "")).mkdir(
            parents=True
        )
    (tmp_path / "class/infiniband/mlx5_3/device/physfn").mkdir()
    for interface, port in (("enp1s0f0np0", "p0"), ("enp1s0f0npf0vf0", "pf0vf0")):
        folder = tmp_path / "class/infiniband/mlx5_0/device/net" / interface
        folder.mkdir(exist_ok=True)
        (folder / "phys_port_name").write_text(f"{port}\n")
    (tmp_path / "kernel").write_text(KERNEL)
    (tmp_path / "daemons").write_text(DAEMONS)
    (tmp_path / "bin").mkdir()
    program(tmp_path / "bin", "journalctl", JOURNALCTL)
    program(tmp_path / "bin", "id", "echo ${ID:-0}\n")
    script = LINK_FLAPS.script.replace("/sys/class", f"{tmp_path}/class")
    told = {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "DATA": str(tmp_path), "since": ""}
    done = subprocess.run(["sh", "-c", script], env=told, capture_output=True, text=True, check=True, timeout=30)
    found = parse(Output(done.stdout))
    assert found.journal
    user = subprocess.run(["sh", "-c", script], env={**told, "ID": "1000"}, capture_output=True, text=True, check=True)
    assert not parse(Output(user.stdout)).journal, "a user sees no lines of daemons, and nothing is proven"
    assert {one.name: (one.device, one.flaps) for one in found.interfaces} == {
        "enp1s0f0np0": ("mlx5_0", (1763890130.1,)),  # two witnesses of one outage
        "ib0": ("mlx5_1", (1763890330.1, 1763890340.1)),  # the last one is of another device by that name
        "ib1": ("mlx5_2", ()),  # somebody took it down
    }


def test_what_was_before_is_not_counted() -> None:
    lines = [f"line|{line}" for line in KERNEL.splitlines()]
    text = "\n".join([f"now|{NOW}", "since|1763890131", "interface|mlx5_0|enp1s0f0np0", "journal|1", *lines])
    assert [one.flaps for one in parse(Output(text)).interfaces] == [()]


def test_a_host_without_a_clock_is_no_answer() -> None:
    with pytest.raises(ProbeFailed):
        parse(Output("interface|mlx5_0|ib0\n"))
