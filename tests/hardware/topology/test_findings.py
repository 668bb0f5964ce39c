"""What is told of a machine's wiring: nothing of a sound one, and each fault at its place."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.rdma.nccl import TopologyFile, parse_topology
from gpuprov.hardware.topology.judge import assign_hcas, list_findings
from gpuprov.hardware.topology.model import Wiring, list_nccl_defects
from gpuprov.hardware.topology.ports import find_bad_ports
from gpuprov.hardware.topology.rails import build_rails
from tests.hardware.topology.machines import CX6, H100, Machine, hgx_h100, port, rail
from tests.hardware.topology.others import crowded, dgx2, dgx_a100, grace, hgx_b200, l40s, shared, swapped, vm
from tests.rows import run_each


def told(machine: Machine) -> tuple[list[str], list[str]]:
    """Warnings, and notes."""
    found = list_findings(machine.read())
    return [one.message for one in found if not one.note], [one.message for one in found if one.note]


def own(wiring: Wiring) -> dict[str, str]:
    return {gpu.name: assign_hcas(wiring)[gpu.index].name for gpu in wiring.gpus}


@run_each("make", [hgx_h100, hgx_b200, dgx_a100])
def test_nothing_is_told_of_a_sound_machine(make: Callable[[], Machine]) -> None:
    assert told(make()) == ([], [])
    assert build_rails(make().read()).matched


def test_two_gpus_to_an_hca_by_design() -> None:
    assert told(dgx2()) == ([], ["each HCA is shared by 2 GPUs"])
    assert told(shared()) == ([], ["each HCA is shared by 2 GPUs"])
    assert own(shared().read()) == {"GPU0": "mlx5_0", "GPU1": "mlx5_0", "GPU2": "mlx5_1", "GPU3": "mlx5_1"}


def test_an_hca_in_a_slot_of_the_cpu() -> None:
    warnings, notes = told(hgx_h100(misplaced=True))
    assert warnings == [
        "GPU3 has no HCA of its own below its PCIe switch: the nearest is ibp111s0 (NODE), which is below no GPU's "
        "switch",
        "paired with no GPU: ibp111s0 (0000:6f:00.0)",
    ]
    assert notes == []


def test_an_hca_in_a_slot_of_another_rail() -> None:
    warnings, _ = told(swapped())
    assert warnings == [
        "GPU1 has no HCA of its own below its PCIe switch: the nearest is mlx5_1 (NODE), which is below the switch "
        "of GPU0",
        "paired with no GPU: mlx5_1 (0000:1c:00.0)",
    ]


def test_pairs_that_have_unequal_numbers_of_hcas() -> None:
    """Five HCAs of which three are below switches, for four GPUs: one of two is shared, the others are not."""
    warnings, _ = told(crowded())
    assert warnings == ["mlx5_1 is shared by GPU2 and GPU3, and other HCAs are not"]


def test_an_hca_is_missing_of_a_pair() -> None:
    """8 HCAs and 8 GPUs, two pairs to a switch; an HCA is in a slot of the CPU, so that two GPUs share one."""
    machine = Machine()
    for number in range(8):
        switch = rail(("15", "38", "97", "b7")[number // 2])
        machine.gpu(port(switch, 2 + number % 2), H100, number // 4)
        where = "pci0000:e6/0000:e6:01.0/0000:e7:00.0" if number == 5 else port(switch, 6 + number % 2)
        machine.hca(where, f"mlx5_{number}", number // 4)
    machine.joined(18)
    assert told(machine)[0] == [
        "paired with no GPU: mlx5_5 (0000:e7:00.0)",
        "mlx5_4 is shared by GPU4 and GPU5, and other HCAs are not",
    ]


def test_a_narrowed_link() -> None:
    (warning,), _ = told(hgx_h100(narrow=True))
    assert warning == "the PCIe link of GPU5 (0000:bc:00.0) is 32 GT/s x8, its ends support 32 GT/s x16"


def test_a_narrowed_link_of_a_switch_and_a_slow_one_of_an_hca() -> None:
    machine = hgx_h100()
    switch, hca = rail("38"), port(rail("48"), 1)
    machine.functions[switch][6:10] = ["32.0 GT/s PCIe", "8", "32.0 GT/s PCIe", "16"]
    machine.functions[hca][6:10] = ["16.0 GT/s PCIe", "16", "32.0 GT/s PCIe", "16"]
    assert told(machine)[0] == [
        "the PCIe link of the PCIe switch above GPU1, ibp59s0 (0000:39:00.0) is 32 GT/s x8, its ends support 32 "
        "GT/s x16",
        "the PCIe link of ibp75s0 (0000:4b:00.0) is 16 GT/s x16, its ends support 32 GT/s x16",
    ]


def test_a_link_is_full_where_the_slot_has_no_more() -> None:
    machine = hgx_h100()
    for way, cells in machine.functions.items():
        if way.endswith("0000:16:00.0") or way.startswith(f"{rail('15')}/"):
            cells[6:10] = ["16.0 GT/s PCIe", "8", "16.0 GT/s PCIe", "8"]
    machine.functions[port(rail("15"), 3)][6:10] = ["16.0 GT/s PCIe", "8", "32.0 GT/s PCIe", "16"]
    assert told(machine) == ([], [])


def test_ports_within_a_switch_are_no_link() -> None:
    """A switch's downstream port tells the width of the slot below it, which is not a fault of the link above."""
    machine = hgx_h100()
    way = port(rail("15"), 3).rpartition("/")[0]
    machine.functions[way][6:10] = ["32.0 GT/s PCIe", "4", "32.0 GT/s PCIe", "16"]
    assert told(machine) == ([], [])


@run_each(
    ("pstate", "persistence", "warned"),
    [("P0", "Enabled", True), ("P0", "Disabled", False), ("P8", "Enabled", False), ("", "[N/A]", False)],
)
def test_a_gpus_speed_is_judged_at_work_only(pstate: str, persistence: str, warned: bool) -> None:
    machine = Machine()
    machine.gpu(
        "pci0000:16/0000:16:01.0/0000:17:00.0",
        "26b9",
        0,
        pstate=pstate,
        mig=f"Disabled, {persistence}",
        now="2.5 GT/s PCIe x16",
        most="16.0 GT/s PCIe x16",
    )
    machine.functions["pci0000:16/0000:16:01.0"][8] = "32.0 GT/s PCIe"
    warnings, notes = told(machine)
    assert bool(warnings) == warned
    assert any("idle" in note for note in notes) != warned


def test_an_idle_gpus_width_is_judged() -> None:
    machine = Machine()
    machine.gpu(
        "pci0000:16/0000:16:01.0/0000:17:00.0",
        "26b9",
        0,
        pstate="P8",
        now="2.5 GT/s PCIe x4",
        most="16.0 GT/s PCIe x16",
    )
    machine.functions["pci0000:16/0000:16:01.0"][8:10] = ["32.0 GT/s PCIe", "16"]
    assert "2.5 GT/s x4" in told(machine)[0][0]


def test_a_width_of_a_vm_where_no_port_is_seen() -> None:
    machine = vm()
    machine.functions["pci0000:00/0000:00:05.0"][7:10] = ["8", "32.0 GT/s PCIe", "16"]
    assert told(machine)[0] == []
    assert told(machine)[1][1:] == [
        "the PCIe link of GPU0 (0000:00:05.0) is 32 GT/s x8, its ends support 32 GT/s x16; the port above is not "
        "seen from here"
    ]


def test_a_flat_vm() -> None:
    warnings, notes = told(vm())
    assert warnings == []
    assert notes == ["no HCA is below the same PCIe switch as a GPU: data between them passes the CPU"]
    assert own(vm().read()) == {"GPU0": "mlx5_0", "GPU1": "mlx5_1"}


def test_grace() -> None:
    assert told(grace()) == ([], ["no HCA is below the same PCIe switch as a GPU: data between them passes the CPU"])
    assert own(grace().read()) == {"GPU0": "mlx5_0", "GPU1": "mlx5_1", "GPU2": "mlx5_2", "GPU3": "mlx5_3"}


def test_a_pcie_host() -> None:
    warnings, notes = told(l40s())
    assert warnings == []
    assert notes == [
        "no HCA is below the same PCIe switch as a GPU: data between them passes the CPU",
        "GPUs on different sockets without NVLink between them: GPU0-GPU2, GPU0-GPU3, GPU1-GPU2, GPU1-GPU3",
        "the PCIe links of GPU0, GPU1, GPU2, GPU3 are slow while the GPUs are idle, which says nothing",
    ]


def test_the_only_hca_is_on_the_other_socket() -> None:
    machine = Machine()
    machine.gpu("pci0000:16/0000:16:01.0/0000:17:00.0", "26b9", 0)
    machine.hca("pci0000:97/0000:97:01.0/0000:98:00.0", "mlx5_0", 1)
    assert told(machine)[0] == ["GPU0 and its nearest HCA, mlx5_0, are on different sockets"]


def test_another_numa_node_of_the_same_socket_is_no_other_socket() -> None:
    machine = Machine(sockets={0: 0, 1: 0, 2: 1, 3: 1})
    machine.gpu("pci0000:16/0000:16:01.0/0000:17:00.0", "26b9", 0)
    machine.hca("pci0000:97/0000:97:01.0/0000:98:00.0", "mlx5_0", 1)
    wiring = machine.read()
    assert wiring.near(wiring.gpus[0])[0] == "SYS"
    assert told(machine)[0] == []


def test_virtual_functions_bridges_and_software_are_no_hcas() -> None:
    machine = hgx_h100()
    for number in range(3):
        machine.hca(f"{port(rail('15'), 1)[:-1]}{number + 1}", f"mlx5_v{number}", 0, virtual=True)
    machine.hca("pci0000:00/0000:00:1d.0/0000:0a:00.0", "mlx5_9", 0, bridge=True, now="8.0 GT/s PCIe x2")
    machine.devices.append("device|rxe0|||||1: CA||||eth0||")
    wiring = machine.read()
    assert [hca.name for hca in wiring.hcas] == [f"ibp{bus}s0" for bus in (24, 59, 75, 92, 154, 186, 202, 218)]
    assert [hca.name for hca in wiring.bridges] == ["mlx5_9"]
    assert wiring.unplaced == ("rxe0",)
    assert told(machine) == ([], [])


def test_devices_of_the_subnet_manager_and_functions_for_data_direct_are_no_hcas() -> None:
    """Of a ConnectX-8: smi1 is on the PCI function of its HCA, and Data Direct has one of its own, without an RDMA
    device."""
    machine = hgx_h100()
    address = port(rail("15"), 1).rpartition("/")[2]
    machine.devices += [
        "sub|smi1|smi|ibp24s0",
        f"device|smi1|{address}|mlx5_core|0x15b3|0x1023|1: CA|a088:c203:0083:c2fc|40.45.1200|0|||",
        "port|smi1|1|4: ACTIVE|5: LinkUp|InfiniBand|200 Gb/sec (1X XDR)|0x0|0x0",
    ]
    way = "pci0000:00/0000:00:1d.0/0000:0a:00.0"
    machine.hca(way, "gone", 0, identifier="15b3:2100", now="8.0 GT/s PCIe x2")
    machine.functions[way][11] = ""
    machine.devices = [line for line in machine.devices if "|gone|" not in line]
    assert "smi1" not in [hca.name for hca in machine.read().hcas]
    assert told(machine) == ([], [])


def test_an_hca_without_its_driver() -> None:
    machine = hgx_h100()
    way = port(rail("48"), 1)
    machine.functions[way][11] = ""
    machine.devices = [line for line in machine.devices if "ibp75s0" not in line]
    warnings, notes = told(machine)
    assert warnings[0].startswith("GPU2 has no HCA of its own")
    assert notes == ["NVIDIA network functions without an RDMA device: 0000:4b:00.0 [15b3:1021]"]


def test_an_adapter_that_does_not_answer_with_and_without_its_rdma_device() -> None:
    for rdma in ("rdma", ""):
        machine, way = hgx_h100(), port(rail("48"), 1)
        machine.functions[way][11:] = [rdma, "gone"]
        machine.devices = [line for line in machine.devices if rdma or "ibp75s0" not in line]
        warnings, notes = told(machine)
        name = "ibp75s0" if rdma else "adapter 15b3:1021"
        assert f"{name} (0000:4b:00.0) does not answer on PCIe: lspci shows it with (rev ff)" in warnings
        assert not notes


@run_each("hcas", [0, 2])
def test_a_host_without_gpus(hcas: int) -> None:
    machine = Machine()
    for number in range(hcas):
        machine.hca(f"pci0000:1{number}/0000:1{number}:01.0/0000:2{number}:00.0", f"mlx5_{number}", 0, identifier=CX6)
    assert told(machine) == ([], [])
    assert not build_rails(machine.read()).matched


def test_a_host_with_nothing() -> None:
    assert told(Machine(sockets={})) == ([], [])


def test_a_host_without_hcas() -> None:
    machine = Machine()
    machine.gpu("pci0000:16/0000:16:01.0/0000:17:00.0", "26b9", 0)
    assert told(machine) == ([], [])
    wiring = machine.read()
    assert wiring.near(wiring.gpus[0]) == (None, ())


def test_a_tree_whose_bridges_are_not_shown() -> None:
    """Functions of bridges that the bus does not list: links are judged by the device alone."""
    machine = hgx_h100(narrow=True)
    machine.functions = {way: cells for way, cells in machine.functions.items() if cells[4] != "0x060400"}
    assert [message.rpartition("; ")[2] for message in told(machine)[0]] == ["the port above is not seen from here"]


def test_a_port_in_words() -> None:
    machine = Machine()
    machine.hca("pci0000:10/0000:10:01.0/0000:11:00.0", "mlx5_0", 0, layer="Ethernet")
    machine.hca("pci0000:12/0000:12:01.0/0000:13:00.0", "erdma_0", 0, layer="Ethernet", identifier="1ded:107f")
    machine.devices = [line.replace("mlx5_core", "erdma") if "erdma_0" in line else line for line in machine.devices]
    machine.devices[1:2] = [machine.devices[1].replace("ACTIVE", "DOWN"), machine.devices[1].replace("|1|4", "|2|4")]
    machine.hca("pci0000:14/0000:14:01.0/0000:15:00.0", "mlx5_1", 0)
    machine.devices.pop()
    wiring = machine.read()
    assert [hca.port for hca in wiring.hcas] == ["Ethernet 400 Gb/s ACTIVE", "Ethernet ACTIVE", "no port"]


def test_a_topology_file_of_another_machine() -> None:
    machine = hgx_h100()
    gpus = [gpu.function.address for gpu in machine.read().gpus]
    rows = "".join(f'text|<pci busid="{address}" class="0x030200"/>\n' for address in [*gpus[:7], "0009:00:00.0"])
    machine.nccl = f'path|/etc/t.xml\nsum|ab  /etc/t.xml\ntext|<system version="1">\n{rows}text|</system>\n'
    file = TopologyFile(path="/etc/t.xml", text=parse_topology(Output(machine.nccl)).text)
    wrong = list_nccl_defects(file, machine.read())
    assert any("names GPUs that the host has not: 0009:00:00.0" in one for one in wrong)
    assert any(f"lacks GPUs of the host: {gpus[7]}" in one for one in wrong)
    found = list_findings(msgspec.structs.replace(machine.read(), told_nccl=wrong))
    assert found[0].message.startswith("NCCL is configured otherwise: /etc/t.xml: it names GPUs")
    assert list_nccl_defects(TopologyFile(path="/etc/t.xml"), machine.read()) == ("/etc/t.xml is not there",)
    assert "not well-formed" in list_nccl_defects(TopologyFile(path="/etc/t.xml", text="<"), machine.read())[0]


def test_a_port_that_is_slower_than_its_like() -> None:
    machine = hgx_h100()
    machine.devices = [row.replace("400 Gb", "100 Gb") if row.startswith("port|ibp") and number == 1 else row
                       for number, row in enumerate(machine.devices)]  # fmt: skip
    warnings, _ = told(machine)
    assert len(warnings) == 1
    assert warnings[0].endswith("runs at 100 Gb/s, its like here at 400")


def test_ports_that_are_slower_than_the_spec_asks_for() -> None:
    """All of them, so that none has a faster like: Reproduced with one of two ports at 100 of 400 Gb/s, "fit for
    work"."""
    machine = hgx_h100()
    machine.devices = [row.replace("400 Gb", "100 Gb") for row in machine.devices]
    devices = machine.read().devices
    assert find_bad_ports(devices, Rdma(rate=100)) == []
    slow = find_bad_ports(devices, Rdma(rate=400))
    assert {str(port).partition(") ")[2] for port in slow} == {"runs at 100 Gb/s, the spec asks for 400"}
    assert len(slow) == 8


def test_no_pair_of_gpus_has_more_nvlinks_than_either_has_up() -> None:
    wiring = hgx_h100().read()
    gpus = [msgspec.structs.replace(gpu, nvlink=msgspec.structs.replace(gpu.nvlink, active=18 - (gpu.index == 2)))
            for gpu in wiring.gpus if gpu.nvlink]  # fmt: skip
    assert [wiring.between(gpus[0], gpus[number]) for number in (1, 2, 3)] == ["NV18", "NV17", "NV18"]
