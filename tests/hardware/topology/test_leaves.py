"""Where cables lead, in the wiring of hosts, and cables that two rails have exchanged."""

from __future__ import annotations

import msgspec
import pytest

from gpuprov.facts.probes.rdma.far_ends import FarEnd, FarEnds
from gpuprov.hardware.topology.command import find_crossed
from gpuprov.hardware.topology.document import build_host
from gpuprov.hardware.topology.model import Wiring
from gpuprov.hardware.topology.text import format_text
from tests.hardware.topology.machines import hgx_h100


def cabled(*leaves: str) -> Wiring:
    """An HGX host whose HCAs end in these switches, in this order."""
    wiring = hgx_h100().read()
    ends = {
        f"{hca.name}/1": FarEnd(switch=leaf, port="port 21") for hca, leaf in zip(wiring.hcas, leaves, strict=False)
    }
    return msgspec.structs.replace(wiring, ends=FarEnds(ports=ends))


LEAVES = tuple(f"leaf{number}" for number in range(8))
CROSSED = ("leaf0", "leaf2", "leaf1", *LEAVES[3:])


def test_a_host_shows_where_its_cables_lead() -> None:
    wiring = cabled(*LEAVES[:7])
    text = format_text("gpu1", wiring, (), plain=True)
    assert "InfiniBand 400 Gb/s ACTIVE  ibs1  to leaf1 port 21" in text
    rows = [line for line in text.splitlines() if line.startswith("GPU")]
    assert rows[0] == "GPU   nearest HCA  distance  netdev  other end"
    assert (rows[1].split()[-3:], rows[8].split()[-1]) == (["leaf0", "port", "21"], "ibs7")
    first, *_, last = build_host(wiring, ()).hcas
    assert [(end.switch, end.port) for end in first.ends] == [("leaf0", "port 21")]
    assert last.ends == ()
    assert "other end" not in format_text("gpu1", hgx_h100().read(), (), plain=True)


def test_interfaces_of_ethernet_lead_somewhere_too() -> None:
    ends = FarEnds(netdevs={"ibs3": FarEnd(switch="leaf3", port="Ethernet1/17")})
    wiring = msgspec.structs.replace(hgx_h100().read(), ends=ends)
    assert [str(end) for hca in wiring.hcas for end in wiring.find_ends(hca)] == ["leaf3 Ethernet1/17"]


def test_two_exchanged_cables() -> None:
    hosts = {f"gpu{number}": cabled(*LEAVES) for number in range(3)} | {"gpu9": cabled(*CROSSED)}
    found = find_crossed(hosts)
    assert list(found) == ["gpu9"]
    second, third = (finding.message for finding in found["gpu9"])
    names = [hca.name for hca in hosts["gpu9"].hcas]
    assert second == f"the cable of {names[1]} leads to leaf2 port 21, where on 3 other hosts that of {names[2]} does"
    assert third.startswith(f"the cable of {names[2]} leads to leaf1")


@pytest.mark.parametrize(
    "hosts",
    [
        {"gpu0": cabled(*LEAVES), "gpu1": cabled(*CROSSED)},
        {f"gpu{number}": cabled(*["tor1"] * 8) for number in range(4)},
        {f"gpu{number}": cabled(*(LEAVES if number % 2 else CROSSED)) for number in range(8)},
        {f"gpu{number}": cabled(*(f"pod{number}-{leaf}" for leaf in LEAVES)) for number in range(4)},
    ],
    ids=["of two hosts none is right", "a switch for a rack", "half and half", "pods of their own"],
)
def test_where_no_rail_is_known_nothing_is_said(hosts: dict[str, Wiring]) -> None:
    assert find_crossed(hosts) == {}
