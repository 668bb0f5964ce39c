"""Which ports are tested, with which command lines: devices, GIDs, addresses, GPU memory."""

from __future__ import annotations

import re
import shlex

from gpuprov.accept.model import Ran, Step
from gpuprov.capabilities.acceptance.fragment import Acceptance, RdmaTests
from gpuprov.capabilities.rdma.fragment import Rdma, Selector
from tests.accept.fleet import ALL_TOOLS, Fleet, bandwidth, data, devices, facts, latency, run
from tests.rows import run_each

GOOD = bandwidth(391.2)


def asked(fleet: Fleet, block: Acceptance, count: int = 2, **more: object) -> list[list[str]]:
    """The command lines of servers and clients, in the order in which they were started."""
    lines: list[list[str]] = []
    plain = fleet.__class__.__call__

    def noted(self: Fleet, steps: list[Step]) -> dict[str, Ran]:
        for step in steps:
            if match := re.search(r"MLX5_SCATTER_TO_CQE=0 (.*) </dev/null", step.script):
                lines.append([step.host, *shlex.split(match[1])])
        return plain(self, steps)

    fleet.__class__ = type("Noting", (Fleet,), {"__call__": noted})
    run(fleet, count, block, **more)  # type: ignore[arg-type]
    return lines


def test_the_rail_of_an_infiniband_host_needs_no_gid() -> None:
    lines = asked(Fleet(ib_write_bw=GOOD), Acceptance(rdma=RdmaTests(tests=("write_bw",))))
    server, client = lines[:2]
    assert server[:6] == ["gpu2", "ib_write_bw", "-d", "mlx5_0", "-i", "1"]
    assert "-x" not in server
    assert client[-1] == "10.0.0.2", "over the address of the port's own interface"
    assert "--report_gbits" in client
    assert client[client.index("-p") + 1] == "$port"


def test_gids_are_found_by_type_and_address_and_differ_from_host_to_host() -> None:
    roce = {f"gpu{n}": facts(n, rdma_devices=devices(n, layer="Ethernet", rate="100 Gb/sec (2X HDR)")) for n in (1, 2)}
    lines = asked(Fleet(ib_write_bw=GOOD), Acceptance(rdma=RdmaTests(tests=("write_bw",))), found=roce)
    server, client = lines[:2]
    assert server[server.index("-x") + 1] == "3"
    assert client[client.index("-x") + 1] == "2"
    assert client[-1] == "10.0.0.2"


def test_a_port_without_a_usable_gid_is_an_error_that_says_so() -> None:
    local = devices(2, layer="Ethernet").replace("0000:0000:0000:0000:0000:ffff", "2001:0db8:0000:0000:0000:0000")
    roce = {"gpu1": facts(1, rdma_devices=devices(1, layer="Ethernet")), "gpu2": facts(2, rdma_devices=local)}
    outcome = run(Fleet(ib_write_bw=GOOD), 2, found=roce)
    assert "gpu2: mlx5_0 has no GID of RoCE v2 with an IPv4 address" in outcome.findings[0].found
    assert outcome.exit_code == 1


def test_iwarp_is_connected_by_rdma_cm_and_pingpong_is_left_out() -> None:
    block = Acceptance(rdma=RdmaTests(tests=("write_bw", "pingpong", "ping")))
    found = {
        f"gpu{n}": facts(n, rdma_devices=devices(n, layer="Ethernet", node="4: RNIC", driver="erdma")) for n in (1, 2)
    }
    lines = asked(Fleet(ib_write_bw=GOOD, rping=data("rping")), block, found=found)
    assert all("-R" in line and "-x" not in line for line in lines if line[1] == "ib_write_bw")
    assert [line[1] for line in lines].count("rping") == 2
    assert not any(line[1] == "ibv_rc_pingpong" for line in lines)


def test_erdma_has_no_inline_data() -> None:
    found = {f"gpu{n}": facts(n, rdma_devices=devices(n, layer="Ethernet", driver="erdma")) for n in (1, 2)}
    lines = asked(Fleet(ib_send_lat=latency(30)), Acceptance(rdma=RdmaTests(tests=("send_lat",))), found=found)
    assert all(line[line.index("-I") + 1] == "0" for line in lines)


def test_an_efa_has_no_connections_that_perftest_could_make() -> None:
    found = {f"gpu{n}": facts(n, rdma_devices=devices(n, layer="Ethernet", driver="efa")) for n in (1, 2)}
    block = Acceptance(rdma=RdmaTests(tests=("write_bw",)))
    assert asked(Fleet(ib_write_bw=GOOD), block, found=found) == []


def test_ping_is_ibping_on_infiniband_by_lid_and_rping_elsewhere() -> None:
    block = Acceptance(rdma=RdmaTests(tests=("ping",)))
    lines = asked(Fleet(ibping=data("ibping")), block)
    assert lines[0][1:3] == ["ibping", "-S"]
    assert lines[1][-2:] == ["-L", "2"]


def test_every_rail_is_tested_and_nvlink_bridges_and_dead_ports_are_not() -> None:
    bridge = devices(9).replace("mlx5_0", "mlx5_9").replace("ib0||", "ib0||bridge")
    down = devices(9).replace("mlx5_0", "mlx5_8").replace("4: ACTIVE", "1: DOWN")
    found = {f"gpu{n}": facts(n, rdma_devices=devices(n, rails=2) + bridge + down) for n in (1, 2)}
    lines = asked(Fleet(ib_write_bw=GOOD), Acceptance(rdma=RdmaTests(tests=("write_bw",))), found=found)
    assert {line[line.index("-d") + 1] for line in lines} == {"mlx5_0", "mlx5_1"}


def test_only_the_devices_that_the_spec_means() -> None:
    found = {f"gpu{n}": facts(n, rdma_devices=devices(n, rails=2)) for n in (1, 2)}
    fabric = Rdma(devices=(Selector(pci="0000:11:00.0"),))
    block = Acceptance(rdma=RdmaTests(tests=("write_bw",)))
    lines = asked(Fleet(ib_write_bw=GOOD), block, found=found, capabilities={"rdma": fabric})
    assert {line[line.index("-d") + 1] for line in lines} == {"mlx5_1"}


@run_each(
    ("flags", "peermem", "wanted"),
    [
        (
            "flag|--use_cuda\nflag|--use_cuda_bus_id\nflag|--use_cuda_dmabuf\n",
            False,
            ["--use_cuda_bus_id=0000:2b:00.0", "--use_cuda_dmabuf"],
        ),
        ("flag|--use_cuda\n", True, ["--use_cuda=1"]),
    ],
)
def test_gpu_memory_is_the_nearest_gpus_by_flags_that_this_perftest_lists(
    flags: str, peermem: bool, wanted: list[str]
) -> None:
    network = (
        "address|ib0|10.0.0.1/24\nmain|192.0.2.1\nhca|mlx5_0|/sys/devices/pci0000:10/0000:10:01.0/0000:11:00.0\n"
        "gpu|0000:1b:00.0|/sys/devices/pci0000:00/0000:1b:00.0\ngpu|0000:2b:00.0|"
        "/sys/devices/pci0000:10/0000:10:01.0/0000:2b:00.0\n"
    )
    tools = ALL_TOOLS + flags + ("peermem|\n" if peermem else "")
    found = {
        f"gpu{n}": facts(n, acceptance_tools=tools, acceptance_network=network.replace("10.0.0.1", f"10.0.0.{n}"))
        for n in (1, 2)
    }
    lines = asked(Fleet(ib_write_bw=GOOD), Acceptance(rdma=RdmaTests(tests=("write_bw",), memory="gpu")), found=found)
    assert all(flag in lines[0] for flag in wanted)


@run_each(("flags", "why"), [("", "built without CUDA"), ("flag|--use_cuda\n", "neither nvidia_peermem")])
def test_gpu_memory_without_a_way_to_it_is_skipped_with_the_reason(flags: str, why: str) -> None:
    network = "address|ib0|10.0.0.1/24\nmain|192.0.2.1\nhca|mlx5_0|/sys/devices/a\ngpu|0000:1b:00.0|/sys/devices/b\n"
    found = {
        f"gpu{n}": facts(
            n, acceptance_tools=ALL_TOOLS + flags, acceptance_network=network.replace("10.0.0.1", f"10.0.0.{n}")
        )
        for n in (1, 2)
    }
    outcome = run(Fleet(), 2, Acceptance(rdma=RdmaTests(tests=("write_bw",), memory="gpu")), found=found)
    assert {one.status for one in outcome.findings} == {"skip"}
    assert why in outcome.findings[0].found


def test_two_hosts_with_one_address_are_told() -> None:
    """Machines behind the same address translation; a test would run from a host to itself."""
    same = "address|ib0|10.0.2.15/24\nmain|10.0.2.15\n"
    outcome = run(Fleet(ib_write_bw=GOOD), 2, found={f"gpu{n}": facts(n, acceptance_network=same) for n in (1, 2)})
    assert "gpu1 and gpu2 have the same address 10.0.2.15" in outcome.findings[0].found


def test_a_host_without_an_ipoib_address_is_reached_by_its_default_route() -> None:
    network = {
        f"gpu{n}": facts(n, acceptance_network=f"address|eth0|192.0.2.{n}/24\nmain|192.0.2.{n}\n") for n in (1, 2)
    }
    lines = asked(Fleet(ib_write_bw=GOOD), Acceptance(rdma=RdmaTests(tests=("write_bw",))), found=network)
    assert lines[1][-1] == "192.0.2.2"
    none = {f"gpu{n}": facts(n, acceptance_network="") for n in (1, 2)}
    assert "no IPv4 address" in run(Fleet(), 2, found=none).findings[0].found


def test_a_port_without_a_lid_has_no_subnet_manager() -> None:
    found = {"gpu1": facts(1), "gpu2": facts(2, rdma_devices=devices(0))}
    assert "gpu2: mlx5_0 has no LID: no subnet manager" in run(Fleet(), 2, found=found).findings[0].found
