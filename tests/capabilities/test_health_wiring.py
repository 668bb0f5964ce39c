"""health: what nobody asked for: links, ports and daemons of the fabric, judged by one rule in health, topology, export
and verify."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gpuprov.capabilities.base import Context, Outcome
from gpuprov.capabilities.health import watched
from gpuprov.capabilities.health.fragment import Health
from gpuprov.capabilities.rdma.fragment import Rdma, Selector
from gpuprov.capabilities.topology.fragment import Topology
from gpuprov.explain import all_checks
from gpuprov.export.defects import doubts
from gpuprov.facts.probes.base import Output, ProbeFailed
from gpuprov.hardware.topology.judge import list_findings
from gpuprov.hardware.topology.model import read
from gpuprov.report.health import as_metrics
from gpuprov.spec.model import Fragment, HostSpec
from gpuprov.verify.evaluate import Result, evaluate
from gpuprov.verify.fitness import fitness, health_code, of_health
from tests.capabilities import imex_host
from tests.capabilities.asking import B200, FM, H100, NVSWITCH, Row, daemon, fabric_state, facts, good, judge, units
from tests.hardware.topology.machines import CX6, H100_PCIE, L40S, T4, Machine, hgx_h100
from tests.hardware.topology.machines import H100 as H100_ID
from tests.rows import run_each

LINKS, NVLINKS, PORTS, FABRIC = (f"health.{name}" for name in ("pcie_links", "nvlinks", "port_state", "fabric"))
METAL, GUEST = "kind|none\n", "kind|kvm\n"
GPU = "0000:19:00.0"
A100_BOARD = H100.replace("0x2330", "0x20b0") + NVSWITCH.replace("0x22a3", "0x1af1")
LENT = "".join(f"{line.rsplit(' ', 1)[0]} vfio-pci\n" for line in (H100 + NVSWITCH).splitlines())
NVLSM = "/opt/nvidia/nvlsm/sbin/nvlsm -F /usr/share/nvidia/nvlsm/nvlsm.conf"


def wired(machine: Machine, kind: str = METAL) -> dict[str, Output | str]:
    return {**machine.texts, "machine": kind}


def ports(*states: str, further: str = "") -> Machine:
    """HCAs of one model, each with a state as `DOWN` or `ACTIVE 100`; `further`: the state of a second function of each
    card."""
    made = Machine()
    made.gpu("pci0000:16/0000:16:01.0/0000:17:00.0", L40S, 0)
    for number, state in enumerate(states):
        for function, word in enumerate(filter(None, (state, further))):
            made.hca(
                f"pci0000:2{number}/0000:2{number}:01.0/0000:3{number}:00.{function}", f"mlx5_{number}_{function}", 0
            )
            name, _, rate = word.partition(" ")
            physical = {"DOWN": "2: Polling", "OFF": "3: Disabled", "INIT": "5: LinkUp"}.get(name, "5: LinkUp")
            row = (
                made.devices[-1]
                .replace("4: ACTIVE", f"1: {name.replace('OFF', 'DOWN')}")
                .replace("5: LinkUp", physical)
            )
            made.devices[-1] = row.replace("400 Gb", f"{rate or 400} Gb")
    return made


def cards(*links: str, model: str = L40S, flat: bool = False) -> Machine:
    """GPUs whose links are `NOW of MOST`, below ports that can do as much as the most capable; `flat`: no port is
    seen."""
    made = Machine(sockets={0: 0})
    for number, link in enumerate(links):
        now, _, most = link.partition(" of ")
        way = f"pci0000:0{number}/0000:0{number}:01.0"
        made.gpu(way if flat else f"{way}/0000:1{number}:00.0", model, 0, now=now, most=most or now)
        if not flat:
            made.functions[way][8:10] = [(most or now).rpartition(" x")[0], (most or now).rpartition(" x")[2]]
    return made


FULL, HALF = "16.0 GT/s PCIe x16", "16.0 GT/s PCIe x8 of 16.0 GT/s PCIe x16"
ROWS = [
    Row("a sound machine", LINKS, None, wired(hgx_h100()), "pass", "16 devices"),
    Row("a narrow link", LINKS, None, wired(hgx_h100(narrow=True)), "fail", "GPU5 (0000:bc:00.0) is 32 GT/s x8",
        "reseat"),
    Row("of x4 at 8 GT/s", LINKS, None, wired(cards(FULL, "8.0 GT/s PCIe x4 of 16.0 GT/s PCIe x16")), "fail",
        "8 GT/s x4"),
    Row("an idle GPU's speed", LINKS, None, wired(hgx_h100()), "pass"),
    Row("a guest whose port is made up", LINKS, None, wired(cards(HALF), GUEST), "pass",
        "what a guest sees of it is made up"),
    Row("a guest with a GPU below its like", LINKS, None, wired(cards(FULL, FULL, HALF), GUEST), "fail",
        "its like here 16 GT/s x16"),
    Row("nothing on the bus", LINKS, None, wired(Machine()), "n/a"),
    Row("NVLinks up", NVLINKS, None, wired(hgx_h100()), "pass", "8 GPUs"),
    Row("NVLinks down", NVLINKS, None, wired(hgx_h100(lost=(2,))), "fail", "GPU2 has 0 NVLinks up", "fabricmanager"),
    Row("cards without NVLink", NVLINKS, None, wired(cards(FULL)), "n/a", "no GPU has NVLinks"),
    Row("ports up", PORTS, None, wired(ports("ACTIVE", "ACTIVE")), "pass", "2 ports"),
    Row("a port down among its like", PORTS, None, wired(ports("ACTIVE", "ACTIVE", "DOWN")), "fail",
        "port 1 of mlx5_2_0 (0000:32:00.0) is DOWN (Polling), 2 of its 3 like here are ACTIVE", "cable"),
    Row("a port without a subnet manager", PORTS, None, wired(ports("ACTIVE", "ACTIVE", "INIT")), "fail",
        "is INIT (LinkUp)"),
    Row("a slow port", PORTS, None, wired(ports("ACTIVE", "ACTIVE", "ACTIVE 100")), "fail",
        "mlx5_2_0 (0000:32:00.0) runs at 100 Gb/s, its like here at 400"),
    Row("a port that is switched off", PORTS, None, wired(ports("ACTIVE", "ACTIVE", "OFF")), "pass",
        "noted: port 1 of mlx5_2_0"),
    Row("ports that nobody uses", PORTS, None, wired(ports("DOWN", "DOWN", "DOWN")), "pass", "noted: "),
    Row("one of two", PORTS, None, wired(ports("ACTIVE", "DOWN")), "pass", "noted: "),
    Row("second ports without cables", PORTS, None, wired(ports("ACTIVE", "ACTIVE", "ACTIVE", further="DOWN")), "pass",
        "noted: "),
    Row("no RDMA device", PORTS, None, wired(cards(FULL)), "n/a"),
    Row("Fabric Manager lives", FABRIC, None, {}, "pass"),
    Row("it is dead", FABRIC, None, {"fabric_manager": daemon("535.261.03", ""),
                                     "units": units(fabric=("failed", "enabled"))},
        "fail", "Fabric Manager is dead: nvidia-fabricmanager.service is failed, no process", "nvidia-smi -r"),
    Row("it was never installed", FABRIC, None, {"fabric_manager": daemon("", ""),
                                                 "units": units(fabric=("inactive", ""))},
        "fail", "Fabric Manager is dead: nvidia-fabricmanager.service is not-found", "fabric_manager: {} in the spec"),
    Row("it lives in a container", FABRIC, None,
        {"fabric_manager": daemon("", "") + "elsewhere|/proc/4711/comm\n", "units": units(fabric=("inactive", ""))},
        "pass"),
    Row("a GPU in no fabric", FABRIC, None, {"fabric_state": fabric_state(GPU, state="In Progress", status="N/A")},
        "fail",
        "0000:19:00.0 In Progress"),
    Row("which waits for a partition", FABRIC, None, {"fabric_manager": daemon("535.261.03",
                                                                               settings={"FABRIC_MODE": 1}),
        "fabric_state": fabric_state(GPU, state="In Progress", status="N/A")}, "pass"),
    Row("short of resources", FABRIC, None,
        {"fabric_state": fabric_state(GPU, status="Insufficient Resources")}, "fail", "Insufficient"),
    Row("a guest whose switches are elsewhere", FABRIC, None, {"nvidia_functions": H100, "machine": GUEST,
        "fabric_state": fabric_state(GPU, state="In Progress", status="N/A")}, "pass",
        "noted: 0000:19:00.0 In Progress"),
    Row("a card without NVLink", FABRIC, None, {"nvidia_functions": H100,
                                                "fabric_state": fabric_state(GPU, state="N/A", status="N/A"),
        "fabric_manager": daemon("535.261.03", ""), "units": units(fabric=("failed", "enabled"))}, "pass"),
    Row("all with virtual machines", FABRIC, None, {"nvidia_functions": LENT, "fabric_state": "",
        "fabric_manager": daemon("", ""), "units": units(fabric=("inactive", ""))}, "pass"),
    Row("all with virtual machines, by another driver", FABRIC, None,
        {"nvidia_functions": LENT.replace("vfio-pci", "nvgrace_gpu_vfio_pci"), "fabric_state": "",
         "fabric_manager": daemon("", ""), "units": units(fabric=("inactive", ""))}, "pass"),
    Row("a fatal error in its log", FABRIC, None, {"fabric_manager": daemon("535.261.03",
        errors=("detected NVSwitch fatal error 20034 on NVSwitch 1",))}, "fail", "fatal error 20034"),
    Row("NVLSM is dead", FABRIC, None, {"nvidia_functions": B200, "fabric_bridges": "0000:0a:00.0\n"}, "fail",
        "no nvlsm process"),
    Row("NVLSM lives", FABRIC, None, {"nvidia_functions": B200, "fabric_bridges": "0000:0a:00.0\n",
        "fabric_manager": daemon("535.261.03", FM, NVLSM)}, "pass"),
    Row("no driver", FABRIC, None, {"loaded_driver": ""}, "n/a", "health.gpus"),
    Row("a container", FABRIC, None, {"container": "podman\n", "units": units(fabric=("inactive", ""))}, "n/a",
        "its machine's"),
    Row("a container with daemons of its own", FABRIC, None, {"container": "podman\n", "loaded_driver": ""}, "pass"),
    Row("whose Fabric Manager is dead", FABRIC, None, {"container": "podman\n", "loaded_driver": "",
        "fabric_manager": daemon("535.261.03", ""), "units": units(fabric=("failed", "enabled"))}, "fail",
        "Fabric Manager is dead"),
    Row("which has no GPU yet", FABRIC, None, {"container": "podman\n", "loaded_driver": "", "fabric_state": "",
        "units": units(fabric=("inactive", "enabled"))}, "n/a", "health.gpus"),
    Row("a tray", FABRIC, None, {"nvidia_functions": imex_host.TRAY, "imex": imex_host.tray()}, "pass"),
    Row("whose IMEX daemon is dead", FABRIC, None, {"nvidia_functions": imex_host.TRAY,
        "imex": imex_host.tray(process=False, unit=("loaded", "failed", "enabled"))},
        "fail", "nvidia-imex is dead", "restart nvidia-imex"),
    Row("which is not READY", FABRIC, None, {"nvidia_functions": imex_host.TRAY,
                                             "imex": imex_host.tray(ready="INITIALIZING")},
        "fail", "INITIALIZING"),
    Row("which Kubernetes starts", FABRIC, None, {"nvidia_functions": imex_host.TRAY,
        "imex": imex_host.tray(process=False, unit=("loaded", "inactive", "disabled"))}, "pass"),
]  # fmt: skip


@run_each("row", ROWS, ids=lambda row: str(row.name))
def test_check(row: Row) -> None:
    judge(row)


@run_each(
    ("check", "changed", "action"),
    [
        (LINKS, wired(hgx_h100(narrow=True)), "drain"),
        (NVLINKS, wired(hgx_h100(lost=(2,))), "reset"),
        (PORTS, wired(ports("ACTIVE", "ACTIVE", "DOWN")), "drain"),
        (FABRIC, {"fabric_manager": daemon("535.261.03", ""), "units": units(fabric=("failed", "enabled"))}, "reset"),
        (FABRIC, {"nvidia_functions": A100_BOARD, "fabric_state": "", "fabric_manager": daemon("535.261.03", ""),
            "units": units(fabric=("failed", "enabled"))}, "restart"),
    ],
)  # fmt: skip
def test_what_is_to_be_done(check: str, changed: Mapping[str, Output | str], action: str) -> None:
    assert asked(check, changed).action == action


def asked(
    check: str, changed: Mapping[str, Output | str], fragment: Fragment | None = None, **blocks: Fragment
) -> Outcome:
    """What the check says with these blocks in the spec; it is given the probes it declares."""
    one = {known.id: known for known in all_checks()}[check]
    texts = {**good(), **changed}
    declared = {probe.name: texts[probe.name] for probe in one.probes if probe.name in texts}
    return one.run(Context(HostSpec(name="gpu1", capabilities=blocks), fragment or Health(), facts(**declared)))


def test_the_spec_may_say_that_the_machine_was_built_so() -> None:
    narrow, lost = wired(hgx_h100(narrow=True)), wired(hgx_h100(lost=(2,)))
    assert asked(LINKS, narrow, topology=Topology()).status == "fail"
    assert asked(LINKS, narrow, topology=Topology(pcie="any")).status == "n/a"
    assert asked(NVLINKS, lost, topology=Topology(nvlinks="any")).status == "n/a"
    slow = wired(ports("ACTIVE", "ACTIVE", "ACTIVE 100"))
    assert asked(PORTS, slow, rdma=Rdma(fabric="infiniband", rate=100)).status == "pass"
    assert asked(PORTS, slow, rdma=Rdma(fabric="infiniband", rate=400)).status == "fail"


def test_ports_that_the_spec_is_about_are_up() -> None:
    down = wired(ports("DOWN", "DOWN"))
    assert asked(PORTS, down, rdma=Rdma(fabric="infiniband")).status == "fail"
    assert asked(PORTS, down, rdma=Rdma(fabric="roce")).status == "pass"
    some = wired(ports("ACTIVE", "DOWN"))
    named = (Selector(pci="0000:30:00.0"),)
    assert asked(PORTS, some, rdma=Rdma(fabric="infiniband", devices=named)).status == "pass"


def test_what_topology_any_lets_pass_is_told() -> None:
    assert (
        "GPU5 (0000:bc:00.0) is 32 GT/s x8"
        in asked_of("topology.pcie", hgx_h100(narrow=True), Topology(pcie="any")).found
    )
    assert "GPU2 has 0 of 18" in asked_of("topology.nvlinks", hgx_h100(lost=(2,)), Topology(nvlinks="any")).found


def asked_of(check: str, machine: Machine, fragment: Fragment, kind: str = METAL) -> Outcome:
    return asked(check, wired(machine, kind), fragment)


@run_each(("model", "speed"), [(T4, "8.0"), (L40S, "16.0")])
@run_each("flat", [True, False])
def test_a_cloud_guest_at_half_width_is_told_and_not_failed(model: str, speed: str, flat: bool) -> None:
    """x8 of x16 of a T4 (g4dn) and of an L40S (g6e): no port is seen, or one that the hypervisor makes."""
    machine = cards(f"{speed} GT/s PCIe x8 of {speed} GT/s PCIe x16", model=model, flat=flat)
    outcome = asked_of("topology.pcie", machine, Topology(), GUEST)
    assert outcome.status == "skip"
    assert "virtual machine (kvm)" in outcome.found
    assert "reseat" not in outcome.fix
    assert asked(LINKS, wired(machine, GUEST)).status == "pass"
    told = [one for one in list_findings(read(facts(**wired(machine, GUEST)))) if one.kind == "link"]
    assert [one.note for one in told] == [True]


def test_a_guest_cannot_say_how_far_an_hca_is() -> None:
    machine = Machine(sockets={0: 0})
    machine.gpu("pci0000:00/0000:00:05.0", H100_ID, -1)
    machine.hca("pci0000:00/0000:00:06.0", "mlx5_0", -1)
    machine.sockets = {0: 0, 1: 1}
    for check, fragment in (
        ("topology.gpu_hca", Topology(gpu_hca="PIX")),
        ("topology.rails", Topology(rails="matched")),
        ("topology.same_socket", Topology(same_socket=True)),
    ):
        assert asked_of(check, machine, fragment, GUEST).status == "skip", check
        assert asked_of(check, machine, fragment, METAL).status == "fail", check


def test_a_guest_may_have_gpus_without_their_nvlinks() -> None:
    """It may have one of a board alone, or some without a partition; a link that is down beside others that are up is a
    defect."""
    machine = hgx_h100(lost=tuple(range(8)))
    assert asked(NVLINKS, wired(machine, GUEST)).status == "pass"
    assert asked(NVLINKS, wired(machine, METAL)).status == "fail"
    assert asked(NVLINKS, wired(hgx_h100(lost=(2,)), GUEST)).status == "fail"


def test_nvlinks_that_nvidia_smi_does_not_tell_of_are_not_proven() -> None:
    machine = hgx_h100()
    machine.nvlinks = {}
    machine.gpus = []
    with pytest.raises(ProbeFailed, match="NVLinks are not known"):
        asked(NVLINKS, wired(machine))
    alone = cards(FULL, model=H100_ID)
    alone.gpus = []
    assert asked(NVLINKS, wired(alone)).status == "n/a"


def test_cards_without_a_bridge_are_well() -> None:
    machine = cards(FULL, FULL, model=H100_PCIE)
    machine.joined(12, lost=(0, 1))
    assert asked(NVLINKS, wired(machine)).status == "pass"


def broken() -> dict[str, Output | str]:
    """A host with a dead Fabric Manager, a GPU at 8 GT/s x4, an NVLink down, a port down, and another at 100 of 400
    Gb/s."""
    machine = hgx_h100(lost=(6,))
    gpu = next(way for way in machine.functions if way.endswith("0000:bc:00.0"))
    machine.functions[gpu][6:8] = ["8.0 GT/s PCIe", "4"]
    rows = [number for number, row in enumerate(machine.devices) if row.startswith("port|")]
    machine.devices[rows[1]] = machine.devices[rows[1]].replace("4: ACTIVE|5: LinkUp", "1: DOWN|2: Polling")
    machine.devices[rows[2]] = machine.devices[rows[2]].replace("400 Gb", "100 Gb")
    return {
        **good(),
        **wired(machine),
        "fabric_manager": daemon("535.261.03", ""),
        "units": units(fabric=("failed", "enabled")),
    }


def results(texts: Mapping[str, Any], **blocks: Fragment) -> list[Result]:
    return evaluate(watched(HostSpec(name="gpu1", capabilities=blocks)), facts(**texts))


def test_a_host_with_defects_that_nobody_asked_for_is_not_fit() -> None:
    found = of_health(results(broken()))
    (one,) = fitness(found)
    assert (one.fit, one.action, health_code(found)) == ("no", "drain", 1)
    assert {cause.check for cause in one.causes} == {LINKS, NVLINKS, PORTS, FABRIC}
    assert 'gpuprov_host_fit{host="gpu1"} 0' in as_metrics(found)


def test_what_health_calls_a_defect_topology_and_export_call_one_in_the_same_words() -> None:
    texts = broken()
    words = {row.check: row.found for row in results(texts) if row.status == "fail"}
    told = [
        one.message for one in list_findings(read(facts(**texts))) if not one.note and one.kind in ("link", "nvlink")
    ]
    assert len(told) == 4
    assert all(any(message in found for found in words.values()) for message in told)
    lines = doubts(facts(**texts), {})
    assert {check for check in (LINKS, NVLINKS, PORTS,
                                FABRIC) if any(line.startswith(check) for line in lines)} == {*words} & {
        LINKS, NVLINKS, PORTS, FABRIC,
    }  # fmt: skip


def test_a_defect_that_the_spec_asks_about_is_told_once() -> None:
    found = results(broken(), topology=Topology())
    follows = {one.check: one.follows for one in found if one.status == "fail"}
    assert (follows[LINKS], follows["topology.pcie"]) == ("topology.pcie", "")
    actions = {one.check: one.action for one in found if one.status == "fail"}
    assert actions[LINKS] == actions["topology.pcie"]
    assert actions[NVLINKS] == actions["topology.nvlinks"]
    (one,) = fitness(of_health(found))
    assert one.fit == "no"


def test_models_are_judged_apart() -> None:
    machine = ports("ACTIVE", "ACTIVE", "ACTIVE")
    machine.hca("pci0000:70/0000:70:01.0/0000:71:00.0", "mlx5_storage", 0, identifier=CX6)
    machine.devices[-1] = (
        machine.devices[-1].replace("400 Gb", "200 Gb").replace("4: ACTIVE|5: LinkUp", "1: DOWN|2: Polling")
    )
    assert asked(PORTS, wired(machine)).status == "pass"
