"""health: what the driver says that a GPU needs, a reset as an event, and Xids of which an Xid 154 decides."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gpuprov.capabilities.base import Outcome
from gpuprov.capabilities.health.fragment import Health
from gpuprov.catalog.lookup import find_symptom
from gpuprov.catalog.verdicts import find_complaints
from gpuprov.catalog.xids import read_xids_file
from tests.capabilities.asking import ask
from tests.capabilities.health_host import BOOT, NOW, OFF_THE_BUS, log, nvlinks, smi, xid
from tests.rows import run_each

XID, SXID, RECOVERY, GPUS = "health.xid", "health.sxid", "health.recovery", "health.gpus"
SWITCH_FOUND = "nvidia-nvswitch: Probing device 0000:c4:00.0, Vendor Id = 0x10de, Device Id = 0x1af1, Class = 0x68000"
UNCONTAINED = xid(95, "pid='<unknown>', name=<unknown>, Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No")
BAD_TSG = xid(51, "BAD_TSG encountered on runlist: 0 with error code: 4")
FATAL = "nvidia-nvswitch1: SXid (PCI:0000:c4:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"
NONE, FLR = "0x0 (None)", "0x1 (PF FLR)"


def changed(before: str, after: str, bus: str = "0000:19:00") -> str:
    return xid(154, f"GPU recovery action changed from {before} to {after}", bus=bus)


def timed(*lines: tuple[float, str], since: int | None = None, first: int = BOOT + 2) -> str:
    """The probe's output with lines at seconds after the first one, an hour ago."""
    told = "".join(f"line|{NOW - 3600 + after:.6f} gpu1 kernel: {line}\n" for after, line in lines)
    return log(since=since, first=first) + told


def judged(
    *lines: tuple[float, str], check: str = XID, fragment: Health | None = None, since: int | None = None
) -> Outcome:
    first = BOOT + 2 if since is None else since - 10
    return ask(check, fragment, kernel_log=timed(*lines, since=since, first=first))


REFUSED = (
    "NVRM: nvAssertOkFailedNoLog: Assertion failed: Reset required [NV_ERR_RESET_REQUIRED] (0x00000062) returned "
    "from status @ kernel_channel.c:2874"
)
"""As https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu/issues/982 has it."""
NEEDS, CONTENT = changed(NONE, FLR), changed(FLR, NONE)
BOOTS, BOOTED = changed(NONE, "0x2 (OS Reboot)"), changed("0x2 (OS Reboot)", NONE)
GONE, CABLE = "NVRM: GPU 0000:19:00.0: GPU has fallen off the bus.", xid(142, "x")
FIRST, SECOND = (SWITCH_FOUND.replace("0000:c4:", bus) for bus in ("0000:c1:", "0000:c2:"))
CRASH = f"{SWITCH_FOUND[:15]}[7]: segfault at 0 ip 0 sp 0 error 4 in x[1+2]"
ROWS: list[tuple[str, str, Sequence[tuple[float, str]], str]] = [
    *((f"a 154 that says {text!r} is never well", XID, [(0, xid(154, text))], "drain")
      for text in ("GPU recovery action changed from 0x0 (None) to 0x9", "GPU recovery action", "")),
    ("an Xid", XID, [(0, UNCONTAINED)], "reset"),
    ("the switches tell of a reset", XID, [(0, UNCONTAINED), (10, SWITCH_FOUND)], "pass"),
    ("an SXid, twice", SXID, [(0, FATAL), (1, FATAL)], "reset"),
    ("the switches tell of a reset after an SXid", SXID, [(0, FATAL), (10, SWITCH_FOUND)], "pass"),
    ("the switches tell of the reset that the driver needed", XID,
        [(0, changed(NONE, "0x1 (GPU Reset Required)")), (10, SWITCH_FOUND)], "pass"),
    ("the driver needs nothing more of that GPU", "health.driver_log", [(0, GONE), (600, BOOTED)], "pass"),
    ("it needs nothing more of another", "health.driver_log",
        [(0, GONE), (600, changed("0x2 (OS Reboot)", NONE, bus="0000:3b:00"))], "reboot"),
    # A reset begins with the first switch that is found; an Xid between two lines of one reset comes after it.
    ("an Xid between two switches", XID, [(0, FIRST), (1, UNCONTAINED), (2, SECOND)], "reset"),
    ("an Xid before both", XID, [(0, UNCONTAINED), (1, FIRST), (2, SECOND)], "pass"),
    ("an Xid between two resets", XID, [(0, FIRST), (1, SECOND), (2, UNCONTAINED), (3, FIRST), (4, SECOND)], "pass"),
    ("a switch of another time", XID, [(0, FIRST), (1, UNCONTAINED), (300, SECOND)], "pass"),
    # Syslog has whole seconds: of lines with the same time the place in the log decides.
    *((f"{what}, in the same second", XID, [(0, ends), (0, UNCONTAINED)], "reset")
      for what, ends in (("after the switches", SWITCH_FOUND), ("after the driver's word", CONTENT))),
    *((f"{what}, in the same second", XID, [(0, UNCONTAINED), (0, ends)], "pass")
      for what, ends in (("before the switches", SWITCH_FOUND), ("before the driver's word", CONTENT))),
    ("an SXid after the switches, in the same second", SXID, [(0, SWITCH_FOUND), (0, FATAL)], "reset"),
    ("an SXid before the switches, in the same second", SXID, [(0, FATAL), (0, SWITCH_FOUND)], "pass"),
    ("a need after none, in the same second", XID, [(0, CONTENT), (0, NEEDS)], "reset"),
    ("a need after the switches, in the same second", XID, [(0, SWITCH_FOUND), (0, NEEDS)], "reset"),
    ("refused after the switches, in the same second", "health.driver_log", [(0, SWITCH_FOUND), (0, REFUSED)], "reset"),
    # A driver that needs nothing plugs no cable in, and updates nothing.
    *((f"{number}: {what}", XID, [(at, xid(number, "x") if line == "x" else line) for at, line in lines], action)
      for number, action in ((54, "drain"), (78, "update"), (142, "drain"))
      for what, lines in (
        ("it needs nothing", [(0, "x"), (5, CONTENT)]),
        ("it needs nothing, in the same second", [(0, "x"), (0, CONTENT)]),
        ("not after the reset, either", [(0, "x"), (1, NEEDS), (20, CONTENT)]),
        ("nor after that of the switches", [(0, "x"), (1, NEEDS), (20, SWITCH_FOUND)]),
        ("while it needed something else", [(0, NEEDS), (600, "x"), (900, CONTENT)]),
      )),
    ("a reset mends no lost GPU", XID, [(0, xid(79, "x")), (10, SWITCH_FOUND)], "reboot"),
    *((f"a reset does not mend {number}", XID, [(0, xid(number, "x")), (10, SWITCH_FOUND)], "drain") for number in (142,
                                                                                                                    54)),
    ("an Xid after a reset", XID, [(0, SWITCH_FOUND), (10, UNCONTAINED)], "reset"),
    ("an Xid before and after it", XID, [(0, UNCONTAINED), (10, SWITCH_FOUND), (20, UNCONTAINED)], "reset"),
    ("an SXid after a reset", SXID, [(0, SWITCH_FOUND), (10, FATAL)], "reset"),
    ("a program may not say that a GPU was reset", XID, [(0, UNCONTAINED), (10, CRASH)], "reset"),
    # The driver decides what an Xid asks for, within the hour and of that GPU, until it says another.
    ("it was reset and is content", XID, [(0, BAD_TSG), (10, NEEDS), (20, CONTENT)], "pass"),
    ("it needs a reset", XID, [(0, BAD_TSG), (1, NEEDS)], "reset"),
    ("a milder word than the catalogue's", XID, [(0, CABLE), (1, NEEDS)], "reset"),
    ("a stronger word", XID, [(0, UNCONTAINED), (1, BOOTS)], "reboot"),
    ("an Xid while it needs a reset", XID, [(0, BAD_TSG), (1, NEEDS), (600, CABLE)], "reset"),
    ("an Xid when it needs nothing", XID, [(0, NEEDS), (60, CONTENT), (600, CABLE)], "drain"),
    ("an Xid when it was reset", XID, [(0, NEEDS), (60, SWITCH_FOUND), (600, CABLE)], "drain"),
    ("another GPU's word", XID, [(0, CABLE), (1, changed(NONE, FLR, bus="0000:3b:00"))], "drain"),
    ("another hour's word", XID, [(0, CABLE), (900, CONTENT)], "drain"),
]  # fmt: skip


@run_each(("check", "lines", "answer"), [pytest.param(*row[1:], id=row[0]) for row in ROWS])
def test_what_a_log_asks_for(check: str, lines: Sequence[tuple[float, str]], answer: str) -> None:
    outcome = judged(*lines, check=check)
    assert (outcome.action or outcome.status) == answer


def driver_says(word: str) -> dict[str, str]:
    line = f"    GPU Recovery Action : {word}\n    MIG Mode"
    return {"gpu_health": smi().replace("    MIG Mode", line, 1)}


@run_each(
    ("word", "action", "fix"),
    [
        ("Reset", "reset", "nvidia-smi --gpu-reset"),
        ("GPU_RESET", "reset", "nvidia-smi --gpu-reset"),
        ("Reboot", "reboot", "restart it"),
        ("OS Reboot", "reboot", "restart it"),
        ("Drain P2P", "drain", "UVM persistence off"),
        ("Drain and Reset", "reset", "take no new work on"),
        ("Recover IMEX Domain", "drain", "restart nvidia-imex"),
        ("RECOVER_IMEX_DOMAIN", "drain", "restart nvidia-imex"),
        ("Bus Reset", "reboot", "restart it"),
        ("SYSTEM_REBOOT", "reboot", "restart the machine"),
        ("Exorcism", "drain", "NVIDIA's reference of NVML"),
    ],
)
def test_nvidia_smi_and_an_xid_154_say_the_same(word: str, action: str, fix: str) -> None:
    shown = ask(RECOVERY, None, **driver_says(word))
    logged = judged((0, changed(NONE, f"0x9 ({word})")))
    assert (shown.status, shown.action, logged.status, logged.action) == ("fail", action, "fail", action)
    assert fix in shown.fix
    assert logged.fix.startswith(shown.fix)
    assert ("gpu-reset" in shown.fix) == (action == "reset"), "another action's fix"


def test_the_fix_is_that_of_the_most_severe_action() -> None:
    told = driver_says("Reset")["gpu_health"]
    two = f"{told}GPU 00000000:3B:00.0\n    GPU Recovery Action : OS Reboot\n".replace("@present 1", "@present 2")
    outcome = ask(RECOVERY, None, gpu_health=two)
    assert (outcome.action, outcome.fix) == ("reboot", "drain the host, then restart it")


def test_an_error_in_place_of_the_word_is_not_proven() -> None:
    outcome = ask(GPUS, None, **driver_says("Unknown Error"))
    assert (outcome.status, "GPU Recovery Action" in outcome.found) == ("skip", True)


def test_every_need_but_none_has_a_fix() -> None:
    assert [row.key for row in read_xids_file().recoveries if not row.fix] == ["none"]


def test_what_was_done_is_told_with_its_time() -> None:
    """What was to be done becomes what was done, by the switches' line or by the driver's word after the Xid that asked
    for it."""
    assert "past" not in judged((0, UNCONTAINED)).found
    by_switches = judged((0, UNCONTAINED), (600, SWITCH_FOUND)).found
    assert "; past: Xid 95 on 0000:19:00 2025-11-23 11:13 UTC, reset 2025-11-23 11:23 UTC" in by_switches
    by_driver = judged((0, UNCONTAINED), (1, changed(NONE, FLR)), (600, changed(FLR, NONE))).found
    assert (
        "; past: Xid 95 on 0000:19:00 2025-11-23 11:13 UTC, after which the driver said that the GPU needs nothing"
        in by_driver
    )
    assert "11:23 UTC" in by_driver
    ignored = judged((0, UNCONTAINED), (600, SWITCH_FOUND), fragment=Health(ignored_xids=(95,)))
    assert "past" not in ignored.found
    before = BOOT - NOW + 3600 - 500
    restarted = judged((before, xid(79, "x")), fragment=Health(since="7d"), since=BOOT - 9000)
    assert "Xid 79 on 0000:19:00" in restarted.found
    assert ", restarted " in restarted.found


def found_at(address: str) -> str:
    return SWITCH_FOUND.replace("0000:c4:00.0", address)


def test_a_fatal_sxid_is_ended_by_its_own_switch_alone() -> None:
    """The driver finds one switch after the other: a fault of the first may come before the second."""
    begin, other = (0, SWITCH_FOUND), found_at("0000:c1:00.0")
    assert judged(begin, (1, FATAL), (2, other), check=SXID).action == "reset"
    past = judged(begin, (1, FATAL), (2, other), (600, SWITCH_FOUND), check=SXID)
    assert past.status == "pass"
    assert past.found.endswith(
        "; past: SXid 20034 on nvidia-nvswitch1 2025-11-23 11:13 UTC, reset 2025-11-23 11:23 UTC"
    )
    renumbered = FATAL.replace("nvswitch1", "nvswitch0")
    assert judged((0, renumbered), (600, SWITCH_FOUND), check=SXID).status == "pass", "its number may be another"
    assert judged((0, FATAL.replace("20034", "23001")), (600, SWITCH_FOUND), check=SXID).action == "reboot"


def test_what_is_past_is_not_let_pass() -> None:
    found = judged((0, UNCONTAINED), (600, SWITCH_FOUND), (700, xid(31, "x"))).found
    assert "noted and let pass: Xid 31; past: Xid 95" in found
    found = judged((0, changed(NONE, FLR)), (600, SWITCH_FOUND)).found
    assert "let pass" not in found
    assert "; past: Xid 154 on 0000:19:00 2025-11-23 11:13 UTC, reset 2025-11-23 11:23 UTC" in found
    decided = judged((0, OFF_THE_BUS), (1, changed(NONE, FLR)), (600, SWITCH_FOUND)).found
    assert "let pass" not in decided
    assert "past: Xid 79 on 0000:19:00 2025-11-23 11:13 UTC, reset" in decided


RESET = """repair|{{"at": {at}, "run": "r1", "act": "{act}", "gpus": [{gpu}], "problem": "{problem}"}}\n"""


@run_each(
    ("repair", "answer"),
    [
        ({}, "pass"),
        ({"gpu": ""}, "pass"),
        ({"gpu": '"0000:3b:00.0"'}, "reset"),
        ({"at": NOW - 3700}, "reset"),
        ({"at": NOW + 0.9}, "pass"),
        ({"at": NOW + 365 * 86400}, "reset"),
        ({"act": "reboot"}, "reset"),
        ({"problem": "refused"}, "reset"),
    ],
)
@run_each("lines", [[(0, UNCONTAINED)], [(0, changed(NONE, FLR))], [(0, BAD_TSG), (1, changed(NONE, FLR))]])
def test_a_reset_of_the_gpu_by_repair_ends_its_lines(
    lines: list[tuple[float, str]], repair: dict[str, object], answer: str
) -> None:
    record = RESET.format(**{"at": NOW - 60, "act": "reset", "gpu": '"0000:19:00.0"', "problem": ""} | repair)
    outcome = ask(XID, None, kernel_log=timed(*lines) + record)
    assert (outcome.action or outcome.status) == answer
    assert outcome.devices == (() if answer == "pass" else ("0000:19:00.0",))


def test_an_xid_after_a_repair_is_not_decided_by_a_word_from_before_it() -> None:
    lines = timed((0, changed(NONE, FLR)), (600, CABLE))
    assert ask(XID, None, kernel_log=lines).action == "reset"
    record = RESET.format(at=NOW - 3500, act="reset", gpu='"0000:19:00.0"', problem="")
    assert ask(XID, None, kernel_log=lines + record).action == "drain"


def test_only_those_since_the_reset_are_counted() -> None:
    found = judged((0, UNCONTAINED), (10, SWITCH_FOUND), (20, UNCONTAINED)).found
    assert "times" not in found


def test_a_154_before_the_boot_decides_nothing_after_it() -> None:
    before = BOOT - NOW + 3600 - 500
    lines = [(before, changed(NONE, FLR)), (0.0, xid(142, "x"))]
    assert judged(*lines, fragment=Health(since="7d"), since=BOOT - 9000).action == "drain"


def test_numbers_that_nvidia_calls_unused_do_not_drain() -> None:
    (unused,) = [row for row in read_xids_file().xids if row.nvidia == "UNUSED"]
    assert len(unused.xids) == 61
    for number in unused.xids:
        outcome = judged((0, xid(number, "x")))
        assert (outcome.status, outcome.action) == ("skip", ""), number
        assert "unused" in outcome.found


BLACKWELL = """GPU 0: NVIDIA GB200 (UUID: GPU-00000001-0000-0000-0000-000000000000)
\t Link 0: Tx packets: 1000
\t Link 0: Rx Errors: 0
\t Link 0: Link recovery successful events: 0
\t Link 0: Link recovery failed events: 0
\t Link 0: Total link recovery events: 0
\t Link 0: Effective Errors: 0
\t Link 0: Effective BER: 15e-255
\t Link 0: Symbol Errors: 9
\t Link 0: Symbol BER: 15e-255
\t Link 0: FEC Errors - 0: 36140749276
@status 0
"""
NVLINK = "health.nvlink_errors"


def blackwell(**changed: str) -> Outcome:
    text = BLACKWELL
    for name, value in changed.items():
        line = f"{name.replace('_', ' ')}: "
        before, found, rest = text.partition(line)
        assert found, line
        text = f"{before}{line}{value}\n{rest.partition(chr(10))[2]}"
    return ask(NVLINK, None, nvlink_errors=text)


def test_of_an_nvlink_5_that_is_well_what_it_counts_is_said() -> None:
    outcome = blackwell()
    assert outcome.status == "pass"
    assert outcome.found == "1 GPU; 0 recoveries, 0 errors, effective BER at most 1.5e-254, symbol BER at most 1.5e-254"


@run_each(
    ("changed", "words"),
    [
        ({"Link_recovery_successful_events": "214"}, "214 recoveries"),
        ({"Link_recovery_failed_events": "1"}, "1 errors"),
        ({"Effective_BER": "15e-6"}, "effective BER 1.5e-05, above 1e-09"),
        ({"Symbol_BER": "15e-4"}, "symbol BER 0.0015, above 1e-25"),
        ({"Symbol_BER": "15e-26"}, "symbol BER 1.5e-25, above 1e-25"),
    ],
)
def test_an_nvlink_5_that_is_not(changed: dict[str, str], words: str) -> None:
    outcome = blackwell(**changed)
    assert (outcome.status, outcome.action) == ("fail", "reset")
    assert words in outcome.found


@run_each("rate", ["15e-255", "0", "1e-9", "9e-10"])
def test_a_bit_error_rate_that_is_borne(rate: str) -> None:
    assert blackwell(Effective_BER=rate).status == "pass"


@run_each("value", ["Unknown Error", "ERR!", "-1", "nan", "inf", "1e9999", "2.5.1", ""])
def test_a_value_that_is_no_number_is_told_and_proves_nothing(value: str) -> None:
    for name in ("Effective_BER", "Rx_Errors"):
        outcome = blackwell(**{name: value})
        assert outcome.status == "skip", (name, value)
        assert f"link 0: {name.replace('_', ' ')} {value or 'nothing'}" in outcome.found


def test_a_counter_that_a_gpu_has_not_is_no_zero() -> None:
    outcome = blackwell(Effective_BER="N/A")
    assert outcome.status == "pass"
    assert outcome.found.endswith("; not counted: Effective BER")
    assert "CRC" not in blackwell().found
    assert "BER" not in ask(NVLINK, None, nvlink_errors=nvlinks()).found


LOST = (
    "NVRM: The NVIDIA GPU 0000:97:00.0 (PCI ID: 10de:2330)",
    "NVRM: installed in this system has fallen off the bus and is not responding to commands.",
    "nvidia: probe of 0000:97:00.0 failed with error -1",
)
"""As https://github.com/leptonai/gpud/pull/1209 has it."""


def test_a_gpu_that_is_gone_without_an_xid_asks_for_what_xid_79_does() -> None:
    shown = judged(*enumerate(LOST), check="health.driver_log")
    assert (shown.status, shown.action) == ("fail", "reboot")
    assert "has fallen off the bus" in shown.found
    assert "gpuprov explain gpu-lost" in shown.fix
    numbered = judged((0.0, xid(79, "GPU has fallen off the bus.")), check="health.driver_log")
    assert numbered.status == "pass", "health.xid has that"


BAD_STATE = "NVRM: GPU0 _kgspBootGspRm: (the GPU is likely in a bad state and may need to be reset)"
UVM = "NVRM: nvGpuOpsReportFatalError: uvm encountered global fatal error 0x60, requiring os reboot to recover."
DETECTION = "NVRM: knvlinkDiscoverPostRxDetLinks_GH100: Getting peer0's postRxDetLinkMask failed!"
MASK = "NVRM: knvlinkUpdatePostRxDetectLinkMask_IMPL: Failed to update Rx Detect Link mask!"


@run_each(
    ("line", "action", "key"),
    [
        (UVM, "reboot", "uvm-fatal"),
        (DETECTION, "reboot", "nvlink-detection"),
        (MASK, "reboot", "nvlink-detection"),
        (BAD_STATE, "reset", "gsp-wpr2"),
    ],
)
def test_what_the_driver_says_itself_that_only_a_reset_or_a_restart_ends(line: str, action: str, key: str) -> None:
    shown = judged((0.0, line), check="health.driver_log")
    assert (shown.status, shown.action) == ("fail", action)
    assert line[:90] in shown.found
    assert [one.key for one in find_symptom(line)] == [key]
    assert judged((0.0, f"evil: {line}"), check="health.driver_log").status == "pass", "a program may say anything"
    assert f"gpuprov explain {key}" in shown.fix


def test_a_gpu_that_the_driver_refuses_until_it_is_reset() -> None:
    shown = judged((0.0, REFUSED), check="health.driver_log")
    assert (shown.status, shown.action) == ("fail", "reset")
    assert "nvidia-smi --gpu-reset" in shown.fix
    assert judged((0.0, REFUSED), (60.0, SWITCH_FOUND), check="health.driver_log").status == "pass", (
        "it was reset since"
    )
    assert judged((0.0, "NVRM: loading NVIDIA UNIX Open Kernel Module"), check="health.driver_log").status == "pass"


@run_each(
    ("line", "check", "action"),
    [
        ("watchdog: CPU3: Watchdog detected hard LOCKUP on cpu 3", "health.kernel", "reboot"),
        ("watchdog: Watchdog detected hard LOCKUP on cpu 12", "health.kernel", "reboot"),
        ("NMI watchdog: Watchdog detected hard LOCKUP on cpu 7", "health.kernel", "reboot"),
        ("NMI watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [kworker/3:1:127]", "health.kernel", "reboot"),
        ("pcieport 0015:00:00.0: DPC: containment event, status:0x200d, ERR_FATAL received from 0015:01:00.0",
            "health.pcie_errors", "drain"),
        ("pcieport 0000:00:01.4: DPC: containment event, status:0x1f01 source:0x0000", "health.pcie_errors", "drain"),
    ],
)  # fmt: skip
def test_lock_ups_and_errors_that_a_port_contains_are_no_pass(line: str, check: str, action: str) -> None:
    shown = judged((0.0, line), check=check)
    assert (shown.status, shown.action) == ("fail", action)
    assert judged((0.0, f"evil: {line}"), check=check).status == "pass", "a program may say anything"
    spoken = judged((0.0, "pcieport 0000:00:01.4: DPC: error containment capabilities: Int Msg #0"), check=check)
    assert spoken.status == "pass"


@run_each(
    ("line", "check", "status"),
    [
        ("mce: [Hardware Error]: CPU 4: Machine Check Exception: 5 Bank 5: be00000000800400", "kernel", "fail"),
        ("mce: [Hardware Error]: CPU 4: Machine Check: 0 Bank 7: 8c00004000010091", "kernel", "pass"),
        ("Kernel panic - not syncing: Fatal local machine check", "kernel", "fail"),
        ("mce: Uncorrected hardware memory error in user-access at 1f4d5000", "kernel", "fail"),
        ("NMI: PCI system error (SERR) for reason a1 on CPU 0.", "kernel", "fail"),
        ("Uhhuh. NMI received for unknown reason 3d on CPU 12.", "kernel", "pass"),
        ("nvidia 0000:c1:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0014 address=0x7f0000 flags=0x0]",
         "pcie_errors", "pass"),
        ("DMAR: [DMA Write] Request device [5c:00.0] fault addr 6df084000", "pcie_errors", "pass"),
    ],
)  # fmt: skip
def test_errors_of_cpus_and_of_the_iommu(line: str, check: str, status: str) -> None:
    shown = judged((0.0, line), check=f"health.{check}")
    assert shown.status == status
    assert line in shown.found, "it is reported at least"
    assert status == "pass" or shown.action == "drain"
    assert judged((0.0, f"evil: {line}"), check=f"health.{check}").found.startswith("none"), (
        "a program may say anything"
    )


PORT, BUS_ERROR = (
    "pcieport 0000:b0:01.0: AER: ",
    "PCIe Bus Error: severity=Uncorrected ({}), type=Transaction Layer, (Requester ID)",
)


@run_each(
    ("lines", "status"),
    [
        ([f"nvme 0000:81:00.0: {BUS_ERROR.format('Non-Fatal')}"], "pass"),
        ([f"nvme 0000:81:00.0: {BUS_ERROR.format('Fatal')}"], "fail"),
        ([f"{PORT}Uncorrected (Non-Fatal) error received: 0000:81:00.0",
            f"nvme 0000:81:00.0: {BUS_ERROR.format('Non-Fatal')}"], "pass"),
        ([f"{PORT}Uncorrectable (Non-Fatal) error message received from 0000:81:00.0",
            f"nvme 0000:81:00.0: {BUS_ERROR.format('Non-Fatal')}"], "pass"),
        ([f"{PORT}Uncorrected (Non-Fatal) error received: 0000:81:00.0"], "fail"),
        *(
            ([f"{driver} 0000:52:00.0: {BUS_ERROR.format('Non-Fatal')}"], "fail")
            for driver in ("nvidia", "nvidia-nvswitch", "mlx5_core", "vfio-pci", "pcieport")
        ),
        ([f"nvme 0000:81:00.0: {BUS_ERROR.format('Non-Fatal')}",
            f"nvidia 0000:52:00.0: {BUS_ERROR.format('Non-Fatal')}"], "fail"),
    ],
)  # fmt: skip
def test_an_error_of_another_device_that_is_not_fatal_is_told(lines: list[str], status: str) -> None:
    shown = judged(*((float(number), line) for number, line in enumerate(lines)), check="health.pcie_errors")
    assert shown.status == status
    if status == "pass":
        assert f"of another device, not fatal: {len(lines)} line" in shown.found


def test_a_complaint_of_nvidia_smi_is_judged_as_explain_judges_it() -> None:
    said = "WARNING: infoROM is corrupted at gpu 0000:02:00.0"
    assert find_complaints((said, "WARNING: something else"), "inforom-corrupted") == [said]
    assert find_complaints((), "inforom-corrupted") == []
    assert find_symptom(said)[0].key == "inforom-corrupted"
