"""What drivers of network adapters say in the kernel log: what is unfit, told or past; and error counters."""

from __future__ import annotations

import re

from gpuprov.capabilities.health.fragment import Health
from gpuprov.catalog import find_symptom
from gpuprov.catalog.nics import NicLine, read_nics_file
from gpuprov.explain.messages import symptoms_in
from gpuprov.facts.probes.gpus.health_links import HW_COUNTERS
from gpuprov.facts.probes.kernel.kernel_log import NIC_DRIVERS
from tests.capabilities.asking import Row, ask, judge
from tests.capabilities.health_host import BOOT, NOW, log, ports
from tests.capabilities.rdma_host import device
from tests.rows import run_each

LOG, COUNTERS = "health.rdma_log", "health.rdma_counters"
HCA, OTHER = "mlx5_core 0000:5c:00.0: ", "mlx5_core 0000:5c:00.1: "
DEAD = "poll_health:792:(pid 0): device's health compromised - reached miss count"
ERROR = "print_health_info:431:(pid 0): Health issue observed, firmware internal error, severity(3) ERROR:"
NOTICE = "print_health_info:431:(pid 0): Health issue observed, firmware internal error, severity(6) INFO:"
BROKEN = "print_health_info:458:(pid 0): synd 0x8: unrecoverable hardware error"
COLD = "print_health_info:475:(pid 0): Cold reset is required"
TIMEOUT = "wait_func:1195:(pid 1967079): CREATE_MKEY(0x200) timeout. Will cause a leak of a command resource"
RECOVERED = "mlx5_health_try_recover:330:(pid 512): health recovery succeeded"
LOADED = "firmware version: 28.43.2566"
OLD = (
    "print_health_info:387:(pid 0): assert_var[0] 0x00000001",
    "print_health_info:398:(pid 0): synd 0x1: firmware internal error",
    "health_care:350:(pid 920): handling bad device here",
    "starting health recovery flow",
)
ABORTED = "health recovery flow aborted since the nic state is invalid"
"""As Linux 4.10 has them:
https://github.com/torvalds/linux/blob/v4.10/drivers/net/ethernet/mellanox/mlx5/core/health.c."""
PLUGGED, UNPLUGGED = (f"Port module event: module 0, Cable {what}" for what in ("plugged", "unplugged"))
HOT = "Port module event[error]: module 0, Cable error, High Temperature"
POWER, ENOUGH = (
    "mlx5_pcie_event:299:(pid 1): Detected insufficient power on the PCIe slot (27W).",
    "PCIe slot advertised sufficient power (75W).",
)
OFF = (
    "Port module event[error]: module 0, Cable error, One or more network ports have been powered down due to "
    "insufficient/unadvertised power on the PCIe slot. Please refer to the card's user manual for power specifications."
)


def said(*lines: str, since: int | None = None, at: int = NOW - 3600) -> dict[str, str]:
    return {"kernel_log": log(*lines, since=since, first=BOOT - 86400 if since else BOOT + 2, at=at)}


@run_each(
    "row",
    [
        Row("a dead firmware", LOG, None, said(HCA + DEAD),
            "fail", "reached miss count", "Drain the host and reboot it"),
        Row("a driver that did not take its adapter", LOG, None,
            said("mlx5_core: probe of 0000:5c:00.0 failed with error -110"),
            "fail", "probe of 0000:5c:00.0 failed", "explain mlx5-load-failed"),
        Row("the same since Linux 6.11", LOG, None,
            said("efa 0000:00:1d.0: probe with driver efa failed with error -62"), "fail"),
        Row("which took it later", LOG, None, said("mlx5_core: probe of 0000:5c:00.0 failed with error -110",
                                                   HCA + LOADED), "pass"),
        Row("a network adapter without RDMA", LOG, None, said("ice: probe of 0000:4b:00.0 failed with error -5"),
            "pass", "told"),
        Row("Pensando's firmware came back", LOG, None, said("ionic 0000:24:00.0: FW heartbeat stalled at 2952797608",
            "ionic 0000:24:00.0: FW heartbeat restored at 2952797612"), "pass", "past: 1 line,"),
        Row("Azure's adapter is silent", LOG, None, said("mana 39d4:00:02.0: HWC: Request timed out!"), "fail",
            "Request timed out",
            "explain mana-dead"),
        Row("loaded anew", LOG, None, said("mana 39d4:00:02.0: HWC: Request timed out!",
            "mana 39d4:00:02.0: Microsoft Azure Network Adapter protocol version: 0.1.1"), "pass", "past: 1 line,"),
        Row("Omni-Path has the device behind the address", LOG, None,
            said("hfi1 0000:05:00.0: hfi1_0: Lost 8051 heartbeat"),
            "fail", "Lost 8051 heartbeat", "explain hfi1-dead"),
        Row("a reset that went well", LOG, None, said("idpf 0000:83:00.0: HW reset detected"), "pass", "told: 1 line,"),
        Row("an error that the firmware reports", LOG, None, said(HCA + ERROR),
            "fail", "severity(3)", "explain mlx5-health-error"),
        Row("as older drivers say it", LOG, None, said(*(HCA + line for line in OLD)), "fail", "2 lines",
            "explain mlx5-bad-device"),
        Row("as older drivers say it, loaded anew", LOG, None, said(*(HCA + line for line in (*OLD, LOADED))),
            "pass", "past: 2 lines"),
        Row("a recovery that was broken off", LOG, None, said(HCA + ABORTED), "fail", "aborted",
            "explain mlx5-recovery-failed"),
        Row("less than an error", LOG, None, said(HCA + NOTICE), "pass", "told: 1 line,"),
        Row("broken hardware", LOG, None, said(HCA + BROKEN),
            "fail", "unrecoverable hardware error", "power it off and on"),
        Row("a command without an answer", LOG, None, said(HCA + TIMEOUT), "fail", "CREATE_MKEY"),
        Row("recovered", LOG, None, said(HCA + DEAD, HCA + RECOVERED), "pass", "past: 1 line,"),
        Row("recovered, and dead again", LOG, None, said(HCA + DEAD, HCA + RECOVERED, HCA + DEAD),
            "fail", "1 line, last"),
        Row("the other port recovered", LOG, None, said(HCA + DEAD, OTHER + RECOVERED), "fail", "0000:5c:00.0"),
        Row("loaded anew", LOG, None, said(HCA + ERROR, HCA + LOADED), "pass", "past: 1 line,"),
        Row("loaded anew, and dead", LOG, None, said(HCA + LOADED, HCA + ERROR), "fail", "severity(3)"),
        Row("broken hardware, loaded anew", LOG, None, said(HCA + BROKEN, HCA + LOADED), "fail", "unrecoverable"),
        Row("a cold reset that is due", LOG, None, said(HCA + COLD, HCA + RECOVERED),
            "fail", "Cold reset is required", "power it off"),
        Row("before this boot", LOG, Health(since="7d"), said(HCA + BROKEN, since=BOOT - 86400, at=BOOT - 7200),
            "pass", "past: 1 line,"),
        Row("since this boot", LOG, Health(since="7d"), said(HCA + DEAD, since=BOOT - 86400),
            "fail", "reached miss count"),
        Row("a cable that somebody took out", LOG, None, said(HCA + UNPLUGGED), "pass", "told: 1 line,"),
        Row("and plugged in again", LOG, None, said(HCA + UNPLUGGED, HCA + PLUGGED), "pass", "past: 1 line,"),
        Row("a hot module", LOG, None, said(HCA + HOT), "pass", "told: 1 line,"),
        Row("little power that the slot tells, as on a healthy DGX Spark", LOG, None, said(HCA + POWER),
            "pass", "told: 1 line,"),
        Row("ports without power", LOG, None, said(HCA + OFF), "fail", "powered down", "explain mlx5-power-off"),
        Row("ports without power, and enough since", LOG, None, said(HCA + OFF, HCA + ENOUGH), "pass", "past"),
        Row("ports without power, among warnings", LOG, None, said(HCA + OFF, HCA + POWER), "fail", "told: 1 line,"),
        Row("a hot module that was replaced", LOG, None, said(HCA + HOT, HCA + PLUGGED), "pass", "past"),
        Row("a dead firmware with a new cable", LOG, None, said(HCA + DEAD, HCA + PLUGGED), "fail", "miss count"),
        Row("power that is there again", LOG, None, said(HCA + POWER, HCA + ENOUGH), "pass", "past"),
        Row("several, the most severe first", LOG, None, said(HCA + BROKEN, HCA + DEAD, OTHER + UNPLUGGED), "fail",
            "told: 1 line,", "power it off and on"),
        Row("a stalled queue of an old kernel", LOG, None,
            said("NETDEV WATCHDOG: ens1 (mlx5_core): transmit queue 0 timed out"),
            "pass",
            "told: 1 line,"),
        Row("another driver's words", LOG, None, said("nvme 0000:5c:00.0: device's health compromised"),
            "pass", "none since"),
        Row("a program of that name", LOG, None, said("mlx5_core 0000:[7]: segfault at 0: Fatal error 1 detected"),
            "pass", "none since"),
    ],
    ids=lambda row: row.name,
)  # fmt: skip
def test_what_drivers_of_adapters_say(row: Row) -> None:
    judge(row)


@run_each("line", read_nics_file().lines, ids=lambda line: line.key)
def test_each_line_is_judged_and_explained_by_its_entry(line: NicLine) -> None:
    """By all readers: the health check, `explain LINE`, and `explain` of a log."""
    outcome = ask(LOG, None, **said(line.example))
    assert outcome.status == ("fail" if line.verdict == "unfit" else "pass")
    assert ("told:" in outcome.found) == (line.verdict == "reported")
    if line.verdict == "recovered":
        assert outcome.found.startswith("none since")
        return
    assert (line.action == "none") == (line.verdict == "reported")
    stamped = f"Dec 02 09:56:04 node1 kernel: {line.example}"
    assert find_symptom(stamped)[0].key == line.key
    assert [seen.symptom.key for seen in symptoms_in(f"{stamped}\n")] == [line.key]


RDMA_NAMES = [
    ("infiniband rdmap0s6: Wait for completion (polling) timeout", "efa-dead"),
    ("infiniband efa_0: Admin queue is closed", "efa-dead"),
    ("infiniband rdmap0s6: Reset indication didn't turn on", "efa-dead"),
    ("infiniband mine: Reset indication didn't turn on", "efa-dead"),
    ("infiniband erdma_0: CMD(hdr 0x200000000) return with error -62", "erdma-dead"),
    ("infiniband iwp0s7: CMD(hdr 0x200000000) return with error -62", "erdma-dead"),
    ("infiniband irdma0: HMC Error", "irdma-critical"),
    ("infiniband rocep24s0: HMC Error", "irdma-critical"),
    ("infiniband bnxt_re0: Failed to create HW CQ", "bnxt-re-refused"),
    ("bnxt_en 0000:41:00.0: QPLIB: cmdq[0xd3a]=0x9 status 0x3", "bnxt-re-refused"),
    ("bnxt_en 0000:41:00.0 rocep65s0f0: Failed to create HW CQ", "bnxt-re-refused"),
    ("bnxt_en 0000:41:00.0: QPLIB: cmdq[0xe]=0x3 timedout (20000)msec", "bnxt-re-stalled"),
]
"""What the kernel prints with the name of the RDMA device alone, and what an adapter refused."""


@run_each(("line", "key"), RDMA_NAMES)
def test_lines_with_the_name_of_an_rdma_device_are_judged_and_explained(line: str, key: str) -> None:
    entry = next(one for one in read_nics_file().lines if one.key == key)
    outcome = ask(LOG, None, **said(line))
    assert (outcome.status, outcome.action) == (("fail", entry.action) if entry.verdict == "unfit" else ("pass", ""))
    assert line in outcome.found
    assert [found.key for found in find_symptom(line)] == [key]
    assert [seen.symptom.key for seen in symptoms_in(f"Dec 02 09:56:04 node1 kernel: {line}\n")] == [key]


DEAD_EFA = "infiniband rdmap0s6: Admin queue is closed"
OF_ANOTHER = [
    "ena 0000:00:05.0: Reset indication didn't turn on",
    "infiniband mlx5_0: Reset indication didn't turn on",
    "nvme 0000:5c:00.0: device's health compromised - reached miss count",
    "ice 0000:18:00.0: Fatal error 1 detected",
]


@run_each("line", OF_ANOTHER)
def test_what_another_driver_says_is_not_judged_by_the_rule_of_this_one(line: str) -> None:
    assert ask(LOG, None, **said(line)).found.startswith("none since")
    assert find_symptom(line) == []
    assert symptoms_in(f"{line}\n") == []


def test_words_without_a_driver_are_explained_by_each_rule_that_has_them() -> None:
    assert find_symptom("Reset indication didn't turn on")[0].key == "efa-dead"


@run_each(
    "later",
    [
        "efa 0000:00:06.0: IB device registered",
        "efa 0000:00:06.0 rdmap0s6: IB device registered",
        "infiniband rdmap0s6: IB device registered",
    ],
)
def test_a_device_is_the_same_by_its_name_and_by_its_address(later: str) -> None:
    assert ask(LOG, None, **said(DEAD_EFA, later)).status == "pass"
    other = later.replace("00:06.0", "00:07.0").replace("rdmap0s6", "rdmap0s7")
    assert ask(LOG, None, **said(DEAD_EFA, other)).status == "fail"


def test_a_name_that_tells_no_address_is_found_beside_one() -> None:
    beside = "efa 0000:c6:00.0 efa_0: IB device registered"
    dead = "infiniband efa_0: Admin queue is closed"
    assert ask(LOG, None, **said(beside, dead)).status == "fail"
    assert ask(LOG, None, **said(beside, dead, "efa 0000:c6:00.0: IB device registered")).status == "pass"


def test_a_program_that_is_named_like_a_device_is_not_believed() -> None:
    line = "infiniband e: [7]: segfault at 0 ip 0 sp 0 error 4 in libnccl.so: Admin queue is closed"
    assert ask(LOG, None, **said(line)).found.startswith("none since")


def test_an_empty_port_is_a_cause_of_an_unplugged_cable() -> None:
    entry = next(one for one in read_nics_file().lines if one.key == "mlx5-unplugged")
    assert "at boot" in entry.cause


@run_each(
    ("lines", "action"), [((HCA + DEAD,), "reboot"), ((HCA + DEAD, HCA + BROKEN), "drain"), ((HCA + UNPLUGGED,), "")]
)
def test_what_is_to_be_done(lines: tuple[str, ...], action: str) -> None:
    assert ask(LOG, None, **said(*lines)).action == action


def test_the_probe_reads_what_the_catalogue_knows() -> None:
    assert {driver for line in read_nics_file().lines for driver in line.drivers} <= {*NIC_DRIVERS}
    assert [counter.key for counter in read_nics_file().counters] == [*HW_COUNTERS]
    keys = {line.key for line in read_nics_file().lines}
    assert {key for line in read_nics_file().lines for key in line.clears} <= keys | {"all"}


HEALTHY = (
    HCA + LOADED,
    HCA + "126.024 Gb/s available PCIe bandwidth, limited by 16.0 GT/s PCIe x8 link at 0000:5b:01.0",
    HCA + "Rate limit: 127 rates are supported, range: 0Mbps to 195312Mbps",
    HCA + "E-Switch: Total vports 10, per vport: max uc(128) max mc(2048)",
    HCA + "Flow counters bulk query buffer size increased, bulk_query_len(8)",
    HCA + PLUGGED,
    HCA + f"mlx5_pcie_event:301:(pid 268269): {ENOUGH}",
    HCA + "mlx5e: IPSec ESP acceleration enabled",
    HCA + "MLX5E: StrdRq(1) RqSz(8) StrdSz(2048) RxCqeCmprss(0 basic)",
    "mlx5_core 0000:5c:00.0 ens1np0: renamed from eth0",
    "mlx5_core 0000:5c:00.0 ens1np0: Link down",
    "mlx5_core 0000:5c:00.0 ens1np0: Link up",
    "bnxt_en 0000:18:00.0 ens2np0: NIC Link is Up, 400000 Mbps full duplex, Flow control: none",
    "bnxt_en 0000:18:00.0 ens2np0: FEC autoneg off encoding: RS544_1XN",
    "ice 0000:19:00.0: 252.048 Gb/s available PCIe bandwidth (16.0 GT/s PCIe x16 link)",
    "ice 0000:19:00.0: PTP init successful",
    "ice 0000:19:00.0 ens3f0: NIC Link is up 100 Gbps Full Duplex, Requested FEC: RS-FEC, Negotiated FEC: RS-FEC",
    "efa 0000:c6:00.0: Setup irq:80 name:efa-mgmnt@pci:0000:c6:00.0",
    "efa 0000:c6:00.0 efa_0: IB device registered",
    "ena 0000:00:05.0: Elastic Network Adapter (ENA) found at mem fe800000, mac addr 0a:00:00:00:00:01",
    "ena 0000:00:05.0 ens5: Local page cache is disabled for less than 16 channels",
    "erdma 0000:00:07.0: assoc netdev mac addr is 0x163e112233.",
)
"""What drivers say of adapters that are well, as they are loaded and their links go up and down."""


def test_a_healthy_log_is_silent() -> None:
    found = ask(LOG, None, **said(*HEALTHY, *HEALTHY))
    assert found.status == "pass"
    assert re.fullmatch(r"none since [-0-9: ]+UTC", found.found)


HW = "hw|mlx5_0|1|local_ack_timeout_err|{}\nhw|mlx5_0|1|out_of_sequence|0\nhw|rdmap198s0|0|no_completion_cmds|1\n"


@run_each(
    "row",
    [
        Row("none counts", COUNTERS, None, {"port_errors": ports()}, "n/a", "no RDMA device counts"),
        Row("told", COUNTERS, None, {"port_errors": HW.format(12)}, "pass",
            "2 ports; mlx5_0 port 1: local_ack_timeout_err 12; rdmap198s0: no_completion_cmds 1"),
        Row("as many as declared", COUNTERS, Health(transport_errors=12), {"port_errors": HW.format(12)}, "pass"),
        Row("more than declared", COUNTERS, Health(transport_errors=11), {"port_errors": HW.format(12)}, "fail",
            "mlx5_0 port 1: local_ack_timeout_err 12", "PFC"),
        Row("of a bridge", COUNTERS, Health(transport_errors=0), {"port_errors": "hw|mlx5_8|1|out_of_sequence|3\n"},
            "n/a", "no RDMA"),
        Row("of a port that stands for another function", COUNTERS, Health(transport_errors=0),
            {"rdma_devices": device("rocep8s0f0", layer="Ethernet"),
             "port_errors": "hw|rocep8s0f0|2|out_of_sequence|3\n"},
            "n/a", "no RDMA"),
        Row("not of the link", "health.ports", Health(port_errors=0), {"port_errors": HW.format(12)}, "n/a",
            "no RDMA device"),
        Row("beside those of the link", "health.ports", Health(port_errors=0), {"port_errors": ports() + HW.format(12)},
            "pass",
            "1 port"),
    ],
    ids=lambda row: row.name,
)  # fmt: skip
def test_errors_of_the_transport(row: Row) -> None:
    judge(row)
