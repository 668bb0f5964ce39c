"""Where cables lead: as lldpd tells, and a port of InfiniBand."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.rdma.far_ends import FAR_ENDS, FarEnd, parse
from tests.here import program

LLDP = """lldp.ens1f0np0.via=LLDP
lldp.ens1f0np0.rid=1
lldp.ens1f0np0.age=0 day, 00:00:04
lldp.ens1f0np0.chassis.mac=f6:2c:92:08:8a:fe
lldp.ens1f0np0.chassis.name=leaf03
lldp.ens1f0np0.chassis.descr=Debian GNU/Linux 12 (bookworm) Linux 6.18.44 x86_64
lldp.ens1f0np0.chassis.mgmt-ip=fe80::f42c:92ff:fe08:8afe
lldp.ens1f0np0.chassis.Bridge.enabled=off
lldp.ens1f0np0.port.local=Ethernet1/17
lldp.ens1f0np0.port.descr=Ethernet1_17
lldp.ens1f0np0.port.ttl=120
lldp.ens1f0np0.port.auto-negotiation.current=10GbaseT - Four-pair Category 6A or better, full duplex mode only
"""
"""What lldpctl 1.0.16 of Debian 12 printed of another lldpd at the other end of a pair of virtual interfaces."""
SMPQUERY = """case "$*" in
*mlx5_1*) exit 1;;
*nodedesc*) echo 'Node Description:........MF0;leaf7:MQM9700/U1';;
*nodeinfo*) printf '%s\\n' '# Node info: DR path slid 65535; dlid 65535; 0,1' \\
  'NodeType:........................Switch' 'NumPorts:........................65' \\
  'LocalPort:.......................21';;
esac
"""
"""The form of infiniband-diags/smpquery.c in rdma-core."""


def test_the_script_over_a_tree(tmp_path: Path) -> None:
    """Only ports of InfiniBand whose link is up are asked; one that does not answer is not known."""
    ports = {"mlx5_0": ("InfiniBand", "5: LinkUp"), "mlx5_1": ("InfiniBand", "5: LinkUp"),
             "mlx5_2": ("InfiniBand", "2: Polling"), "mlx5_3": ("Ethernet", "5: LinkUp")}  # fmt: skip
    for name, (layer, physical) in ports.items():
        folder = tmp_path / f"sys/{name}/ports/1"
        folder.mkdir(parents=True)
        (folder / "link_layer").write_text(f"{layer}\n")
        (folder / "phys_state").write_text(f"{physical}\n")
    (tmp_path / "bin").mkdir()
    program(tmp_path / "bin", "smpquery", f'echo "$*" >> {tmp_path}/asked\n{SMPQUERY}')
    program(tmp_path / "bin", "lldpctl", f"cat <<'END'\n{LLDP}END\n")
    script = FAR_ENDS.script.replace("/sys/class/infiniband", f"{tmp_path}/sys")
    path = f"{tmp_path}/bin:{os.environ['PATH']}"
    done = subprocess.run(["sh", "-c", script], env={"PATH": path}, capture_output=True, text=True, check=True)
    found = parse(Output(done.stdout))
    assert found.netdevs == {"ens1f0np0": FarEnd(switch="leaf03", port="Ethernet1/17")}
    assert found.ports == {"mlx5_0/1": FarEnd(switch="MF0;leaf7:MQM9700/U1", port="port 21")}
    assert {line.split()[1] for line in (tmp_path / "asked").read_text().splitlines()} == {"mlx5_0", "mlx5_1"}


def test_other_forms_of_a_neighbour() -> None:
    vlan = "lldp.bond0.100.chassis.mac=aa:bb:cc:00:00:01\nlldp.bond0.100.port.mac=aa:bb:cc:00:00:02\n"
    arista = "lldp.eth0.chassis.name=core=1\nlldp.eth0.port.descr=gpu017\nlldp.eth0.port.ifname=Ethernet1/1\n"
    assert parse(Output(f"@\n{vlan}{arista}lldp.eth1.via=LLDP\n")).netdevs == {
        "bond0.100": FarEnd(switch="aa:bb:cc:00:00:01", port="aa:bb:cc:00:00:02"),
        "eth0": FarEnd(switch="core=1", port="Ethernet1/1"),
    }
    host = "Node Description:...................gpu018 mlx5_0\nNodeType:...Channel Adapter\nLocalPort:....1\n"
    assert parse(Output(f"@\n@port mlx5_0/1\n{host}")).ports == {"mlx5_0/1": FarEnd(switch="gpu018 mlx5_0")}
    assert parse(Output("@\n")) == parse(Output("@\n@port mlx5_0/1\n"))
