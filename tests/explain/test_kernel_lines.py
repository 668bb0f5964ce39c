"""Lines of the kernel by which health makes a host unfit are explained, with the same advice."""

from __future__ import annotations

from gpuprov.catalog import find_symptom
from gpuprov.explain import in_text
from gpuprov.explain.choosing import _words as words
from gpuprov.explain.messages import symptoms_in
from tests.capabilities.asking import ask
from tests.capabilities.health_host import BOOT, NOW, log
from tests.rows import run_each

PORT = "pcieport 0000:00:01.0: "
PCIE, KERNEL = "health.pcie_errors", "health.kernel"
JUDGED = [
    (PORT + "AER: Uncorrectable (Fatal) error message received from 0000:01:00.0", PCIE, "pcie-uncorrected"),
    (PORT + "AER: Multiple Uncorrected (Non-Fatal) error received: 0000:01:00.0", PCIE, "pcie-uncorrected"),
    (
        "nvidia 0000:01:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer",
        PCIE,
        "pcie-uncorrected",
    ),
    ("nvidia 0000:01:00.0: AER: aer_uncor_severity: 0x00062030", PCIE, "pcie-uncorrected"),
    ("Kernel panic - not syncing: Fatal exception", KERNEL, "kernel-crash"),
    ("Oops: 0002 [#1] SMP NOPTI", KERNEL, "kernel-crash"),
    ("Internal error: Oops: 0000000096000004 [#1] SMP", KERNEL, "kernel-crash"),
    ("BUG: scheduling while atomic: bash/902/0x00000200", KERNEL, "kernel-crash"),
    ("BUG: kernel NULL pointer dereference, address: 0000000000000008", KERNEL, "kernel-crash"),
    (
        "general protection fault, probably for non-canonical address 0xdead000000000100: 0000 [#1] PREEMPT SMP NOPTI",
        KERNEL,
        "kernel-crash",
    ),
    ("general protection fault: 0000 [#2] SMP PTI", KERNEL, "kernel-crash"),
    ("Oops: general protection fault, probably for non-canonical address 0x5: 0000 [#1] SMP", KERNEL, "kernel-crash"),
    ("invalid opcode: 0000 [#1] SMP NOPTI", KERNEL, "kernel-crash"),
    ("divide error: 0000 [#1] SMP", KERNEL, "kernel-crash"),
    ("kernel BUG at mm/slub.c:305!", KERNEL, "kernel-crash"),
    ("watchdog: BUG: soft lockup - CPU#12 stuck for 22s! [python3:4711]", KERNEL, "kernel-lockup"),
]
EXPLAINED = [
    (PORT + "DPC: containment event, status:0x200d, ERR_FATAL received from 0015:01:00.0", "pcie-uncorrected"),
    ("watchdog: CPU3: Watchdog detected hard LOCKUP on cpu 3", "kernel-lockup"),
    ("NMI watchdog: Watchdog detected hard LOCKUP on cpu 1", "kernel-lockup"),
    *((line, key) for line, _, key in JUDGED),
]


@run_each(("line", "key"), EXPLAINED)
def test_a_line_is_explained_by_itself_and_in_a_log(line: str, key: str) -> None:
    assert [found.key for found in find_symptom(line)] == [key]
    assert [seen.symptom.key for seen in symptoms_in(f"Dec 02 09:56:04 node1 kernel: {line}\n")] == [key]


@run_each(("line", "check", "key"), JUDGED)
def test_it_has_the_advice_of_the_check_that_judges_it(line: str, check: str, key: str) -> None:
    outcome = ask(check, None, kernel_log=log(line, first=BOOT + 2, at=NOW - 3600))
    assert outcome.status == "fail"
    assert outcome.fix == f"{find_symptom(line)[0].fix} gpuprov explain {key}"


def test_a_gpu_off_the_bus_has_one_cure_with_an_xid_and_without() -> None:
    xid, lost = find_symptom("Xid 79")[0], find_symptom("GPU is lost. Reboot the system to recover this GPU")[0]
    assert xid.fix == lost.fix
    assert "restart" in xid.fix


def test_a_corrected_error_and_an_empty_queue_are_no_such_line() -> None:
    for line in (
        "traps: python3[4711] general protection fault ip:7f1a sp:7ffd error:0 in libcuda.so.1[7f1a+1000]",
        "traps: python3[4711] trap invalid opcode ip:7f1a sp:7ffd error:0 in a.so[7f1a+1000]",
        PORT + "AER: Corrected error message received from 0000:01:00.0",
        "debug: no bug: fine",
    ):
        assert not {found.key for found in find_symptom(line)} & {"pcie-uncorrected", "kernel-crash", "kernel-lockup"}


def test_an_xid_154_decides_in_a_log_as_it_does_for_health() -> None:
    tsg = "NVRM: Xid (PCI:0000:19:00): 95, pid=4711, Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No"
    change = "NVRM: Xid (PCI:0000:19:00): 154, GPU recovery action changed from {} to {}"
    needs, none = change.format("0x0 (None)", "0x1 (PF FLR)"), change.format("0x1 (PF FLR)", "0x0 (None)")
    for lines, standing in (
        ([tsg], {"xid-95": "reset"}),
        ([tsg, needs], {"xid-154": "reset"}),
        ([tsg, needs, none], {}),
        ([tsg, needs, none, tsg], {"xid-95": "reset"}),
        ([tsg, needs.replace("19:00", "3b:00")], {"xid-95": "reset", "xid-154": "reset"}),
    ):
        text = "".join(f"[{100 * number + 1:5d}.000000] {line}\n" for number, line in enumerate(lines))
        text = text.replace("  101.", "    2.")  # the driver follows an Xid with a 154 at once
        seen = [one for one in symptoms_in(text) if one.verdict and one.verdict.standing == "unfit" and not one.ended]
        assert {one.symptom.key: one.verdict.action for one in seen if one.verdict} == standing, lines


def test_what_a_reset_ended_in_a_log_asks_for_nothing() -> None:
    found = "nvidia-nvswitch: Probing device 0000:c4:00.0, Vendor Id = 0x10de, Device Id = 0x1af1, Class = 0x68000"
    gsp = "NVRM: Xid (PCI:0000:19:00): 119, pid=1, name=x, Timeout after 6s of waiting for RPC response from GPU0 GSP!"
    sxid = "nvidia-nvswitch1: SXid (PCI:0000:{}:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"
    gap = ["usb 1-1: new device"] * 60
    for line, is_past in ((gsp, True), (sxid.format("c4"), True), (sxid.format("c1"), False)):
        for lines, ended in (
            ([line, *gap, found], is_past),
            ([found, *gap, line], False),
            ([line, found, line], False),
        ):
            text = "".join(f"Nov 28 10:00:00 gpu017 kernel: {line}\n" for line in lines)
            (answer,) = in_text(text, "standard input")
            said = dict(answer.lines)
            assert ("fix" not in said, said["health"].startswith("past for health.")) == (ended, ended), lines
            assert said["cause"]


def test_what_was_before_the_last_boot_of_a_log_is_past() -> None:
    stamp = "2026-11-28T{}:00:00+00:00 gpu01 kernel: {}\n"
    xid = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=x, GPU has fallen off the bus."
    boot = "Linux version 6.8.0-40-generic (buildd@x) #40-Ubuntu SMP"
    gap = "".join(stamp.format("11", "usb 1-1: new device") for _ in range(60))
    for lines, past in (
        ((("10", xid), ("12", boot)), True),
        ((("10", boot), ("12", xid)), False),
        ((("09", xid), ("10", boot), ("12", xid)), False),
    ):
        text = gap.join(stamp.format(*line) for line in lines)
        said = dict(in_text(text, "standard input")[0].lines)
        assert ("fix" not in said, said["health"].startswith("past for health.")) == (past, past), lines


def test_lines_about_switches_are_still_found() -> None:
    """The words that choose a line that ends others are beside those that choose messages."""
    for line in ("failed to initialize nvswitch", "failed to register nvswitch"):
        assert set(words()[b"nvswitch"]) > {frozenset(map(str.encode, line.split()))}
