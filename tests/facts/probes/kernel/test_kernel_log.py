"""The kernel log: lines of the journal and of dmesg, from when on, and what they say of Xids and SXids."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuprov.facts.probes.base import Output, ProbeFailed
from gpuprov.facts.probes.kernel.kernel_log import KERNEL_LOG, KernelLog, parse, seconds, sxids, xids
from tests.capabilities import health_host
from tests.capabilities.asking import Row, judge
from tests.facts.probes import run_well
from tests.rows import run_each

BOOT, NOW = 1_763_800_000, 1_763_900_000
HEAD = f"now|{NOW}\nboot|{BOOT}\n"
REAL = Path(__file__).parents[3] / "real"


def read(*lines: str, head: str = HEAD + "source|dmesg\nfirst|[    0.000000] Linux version 6.1\n") -> KernelLog:
    return parse(Output(head + "".join(f"line|{line}\n" for line in lines)))


def test_a_line_of_dmesg_has_its_time_from_the_boot() -> None:
    log = read("[  100.500000] NVRM: Xid (PCI:0000:9b:00): 79, pid=1, GPU has fallen off the bus.")
    (event,) = xids(log)
    assert (event.device, event.number, event.count, event.at) == ("0000:9b:00", 79, 1, BOOT + 100.5)
    assert event.text == "pid=1, GPU has fallen off the bus."
    assert log.missing() is None


def test_a_line_of_the_journal_has_its_own() -> None:
    head = HEAD + f"source|journal\nfirst|{BOOT + 900}.000000 gpu1 kernel: later\n"  # the journal was rotated
    log = read(f"{NOW - 9}.250000 gpu1 kernel: NVRM: Xid (PCI:0000:9b:00): 31, pid=1", head=head)
    assert [(one.number, one.at) for one in xids(log)] == [(31, NOW - 8.75)]
    assert log.missing() == BOOT + 900


@run_each("off", [-28800, 28800])
def test_a_clock_that_is_wrong_at_boot_puts_nothing_in_the_past_and_cuts_no_log_off(off: int) -> None:
    """Until chrony has set it; /proc/stat tells the boot by the right time."""
    head = f"source|journal\nfirst|{BOOT + off}.000000 gpu1 kernel: Linux version 6.1.0-47-amd64\n"
    at = f"{BOOT + off + 12}.000000 gpu1 kernel: {health_host.OFF_THE_BUS}"
    log = f"{HEAD}{head}line|{at}\n"
    assert parse(Output(log)).missing() is None
    judge(Row("now", "health.xid", None, {"kernel_log": log}, "fail", "Xid 79"))


def test_a_dmesg_without_times_is_no_log() -> None:
    with pytest.raises(ProbeFailed, match="have no time"):
        read(head=f"{HEAD}source|dmesg\nfirst|Linux version 6.1.0-47-amd64\n")


def test_what_is_older_than_asked_for_is_left_out() -> None:
    since = f"{HEAD}since|{BOOT + 200}\nsource|dmesg\nfirst|[    0.000000] Linux version 6.1\n"
    lines = [f"[  {second}.000000] NVRM: Xid (PCI:0000:9b:00): 31, pid=1" for second in (100, 300)]
    assert [one.count for one in xids(read(*lines, head=since))] == [1]


@run_each(
    ("name", "file", "found"),
    [
        ("row-remap-xid63", "dmesg.txt", {("0000:10:1c", 63, 1)}),
        ("xid13-old-format", "journal.txt", {("0000:01:00", 13, 2)}),
        ("xid31-old-format", "journal.txt", {("0000:01:00", 31, 1)}),
    ],
)
def test_xids_of_real_hosts(name: str, file: str, found: set[tuple[str, int, int]]) -> None:
    text = (REAL / name / file).read_text(encoding="utf-8")
    rows = [line[line.index("NVRM: Xid") :] for line in text.splitlines() if "NVRM: Xid" in line]
    log = read(*(f"[  100.000000] {row}" for row in rows))
    assert {(one.device, one.number, one.count) for one in xids(log)} == found


@run_each("instance", ["", " GPU-I:05", " GPU-I:05 GPU-CI:00"])
def test_an_xid_of_a_mig_instance_is_one_of_its_gpu(instance: str) -> None:
    """As kernel_rc.c of NVIDIA's open modules prints it; the example is that of its error containment."""
    log = read(
        f"[  100.5] NVRM: Xid (PCI:0000:01:00{instance}): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, "
        "D-RST: No"
    )
    assert [(one.device, one.number, one.text[:8]) for one in xids(log)] == [("0000:01:00", 94, "pid=7194")]


def test_an_sxid_is_told_by_its_first_line() -> None:
    rows = [
        "[    1.000000] nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up",
        "[    1.000001] nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Severity 1 Engine instance 48 Sub-engine "
        "instance 00",
        "[    1.000002] nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Data {0x10000000, 0x10000000}",
        "[    2.000000] nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Non-fatal, Link 48 LTSSM Fault Up",
    ]
    found = [(one.device, one.count, one.text) for one in sxids(read(*rows))]
    link = "Link 48 LTSSM Fault Up"
    assert found == [("nvidia-nvswitch1", 1, f"Non-fatal, {link}"), ("nvidia-nvswitch1", 1, f"Fatal, {link}")]


def test_a_host_without_a_clock_says_nothing() -> None:
    with pytest.raises(ProbeFailed, match="clock and boot"):
        parse(Output("line|[  1.0] x\n"))


@run_each(
    ("since", "told"),
    [("boot", ""), ("90m", "-5400"), ("7d", "-604800"), ("2025-11-20T14:02Z", "@1763647320"),
     ("2025-11-20 14:02:05+01:00", "@1763643725")],
)  # fmt: skip
def test_times(since: str, told: str) -> None:
    assert seconds(since, NOW) == told


@run_each("since", ["2025-13-40", "2999-01-01"])
def test_no_times(since: str) -> None:
    with pytest.raises(ValueError, match=r"month|future"):
        seconds(since, NOW)


def test_the_script_asks_the_journal_for_what_is_asked_for(tmp_path: Path) -> None:
    """A journalctl that notes how it is asked."""
    journalctl = (
        f'echo "$*" >> {tmp_path}/asked\n'
        "echo '1763800001.000000 gpu1 kernel: NVRM: Xid (PCI:0000:9b:00): 79, x'\n"
        "echo '1763800002.000000 gpu1 kernel: nothing of interest'"
    )
    for asked, wanted in (("", "-k -b"), ("@1763800000", "_TRANSPORT=kernel --since @1763800000")):
        script = f"since={asked}\n{KERNEL_LOG.script}"
        output = run_well(script, tmp_path, {"journalctl": journalctl})
        log = parse(output)
        assert [one.number for one in xids(log)] == [79]
        assert len(log.lines) == 1
        assert log.since == (float(asked[1:]) if asked else None)
        assert wanted in (tmp_path / "asked").read_text()


FORGED = (
    "a[7]: segfault at 0 ip 0 sp 0 error 4 in NVRM: Xid (PCI:0000:19:00): 79, GPU has fallen off the bus.[5+1]",
    "a[7]: segfault at 0 ip 0 sp 0 error 4 in kernel: NVRM: Xid (PCI:0000:19:00): 79, x[5+1]",
    "NVRM: Xid 0: 79[7]: segfault at 0 ip 0 sp 0 error 4 in a[5+1]",
    "a[7]: segfault at 0 ip 0 sp 0 error 4 in nvidia-nvswitch0: SXid (PCI:0000:06:00.0): 20034, Fatal, x[5+1]",
    "a[7]: segfault at 0 ip 0 sp 0 error 4 in pcieport 0000:15:01.0: PCIe Bus Error: severity=Uncorrected (Fatal)[5+1]",
    "Kernel panic - [7]: segfault at 0 ip 0 sp 0 error 4 in a[5+1]",
    "BUG: kernel [7]: segfault at 0 ip 0 sp 0 error 4 in a[5+1]",
    "Oops: 0000 [7]: segfault at 0 ip 0 sp 0 error 4 in a[5+1]",
    "a[7]: segfault at 0 ip 0 sp 0 error 4 in EXT4-fs (sda1): Remounting filesystem read-only[5+1]",
    "a (b): [7]: segfault at 0 ip 0 sp 0 error 4 in Remounting filesystem read-only[5+1]",
    "a[7]: segfault at 0 ip 0 sp 0 error 4 in mlx5_core 0000:5c:00.0: Port module event[error]: High Temperature[5+1]",
    "infiniband e: [7]: segfault at 0 ip 0 sp 0 error 4 in Admin queue is closed[5+1]",
)
"""What a user brings about who names a program, or its file, so: https://docs.kernel.org/admin-guide/sysctl/debug.html
"""


def from_host(tmp_path: Path, rows: list[str], *, program: str = "journalctl") -> KernelLog:
    """What the script prints on a host whose log has these lines."""
    stamp = "1763800001.000000 gpu1 kernel: " if program == "journalctl" else "[  100.500000] "
    (tmp_path / "log").write_text("".join(f"{stamp}{row}\n" for row in rows))
    programs = {name: f"cat {tmp_path}/log" if name == program else "" for name in ("journalctl", "dmesg")}
    return parse(run_well(KERNEL_LOG.script, tmp_path, programs))


@run_each("program", ["journalctl", "dmesg"])
def test_a_user_s_program_forges_no_line_and_hides_none(tmp_path: Path, program: str) -> None:
    real = ["NVRM: Xid (PCI:0000:9b:00): 79, x", "watchdog: BUG: soft lockup - CPU#18 stuck for 27s! [a:7]"]
    log = from_host(tmp_path, [*real, *FORGED * 300], program=program)
    assert [(one.device, one.number) for one in xids(log)] == [("0000:9b:00", 79)]
    assert sxids(log) == ()
    assert [line.text for line in log.lines if "libnccl" not in line.text] == real


MANY = 4000
FLOOD = (
    "NVRM: Xid (PCI:0000:9b:00): 13, Graphics SM Warp Exception on (GPC 0, TPC 0, SM 0): Out Of Range Address",
    "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Non-fatal, Link 48 LTSSM Fault Up",
    "NVRM: Xid (PCI:0018:01:00): 149, NETIR_BER_EVENT  Nonfatal XC0 i0 Link 03 (0x00000000 0x00000000)",
    "pcieport 0000:00:1c.5: AER: Corrected error received: 0000:01:00.0",
    "pcieport 0000:00:1c.5: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
    "mlx5_core 0000:5c:00.0: mlx5_cmd_out_err:838:(pid 7): ACCESS_REG(0x805) op_mod(0x1) failed, status bad "
    "resource(0x5)",
    "mlx5_core 0000:5c:00.0: print_health_info:431:(pid 0): Health issue observed, EQ error, severity(6) INFO:",
)
"""What real hosts say by the thousand: https://bugs.launchpad.net/bugs/1521173, and each program's Xid 13 takes a line
of each SM."""


@pytest.mark.install
@pytest.mark.parametrize("program", ["journalctl", "dmesg"])
def test_what_comes_by_the_thousand_hides_nothing_else(tmp_path: Path, program: str) -> None:
    rare = [
        "NVRM: Xid (PCI:0000:9b:00): 95, pid=7062, Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No",
        "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up",
        "NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 08 (0x004505c6 0x00000000)",
        "pcieport 0000:15:01.0: AER: Uncorrected (Fatal) error received: 0000:19:00.0",
        "watchdog: BUG: soft lockup - CPU#18 stuck for 27s! [a:7]",
        "pcieport 0000:15:01.0: AER: aer_uncor_severity: 0x00062030",
        "XFS (dm-0): Log I/O Error Detected.  Shutting down filesystem",
        "BTRFS info (device vda2: state EA): forced readonly",
        "mlx5_core 0000:5c:00.0: Port module event[error]: module 0, Cable error, High Temperature",
        "mlx5_core 0000:5c:00.0: print_health_info:431:(pid 0): Health issue observed, EQ error, severity(3) ERROR:",
        "mlx5_core 0000:5d:00.0: print_health_info:431:(pid 0): Health issue observed, EQ error, severity(6) INFO:",
        "bnxt_en 0000:18:00.0 ens2np0: Firmware reset aborted",
        "efa 0000:c6:00.0 rdmap198s0: Wait for completion (polling) timeout",
        "infiniband rdmap0s6: Wait for completion (polling) timeout",
    ]
    log = from_host(tmp_path, [*rare, *FLOOD * MANY], program=program)
    assert {(one.number, one.count) for one in xids(log)} == {(13, MANY), (95, 1), (149, MANY), (149, 1)}
    assert {(one.count, one.text[:5]) for one in sxids(log)} == {(MANY, "Non-f"), (1, "Fatal")}
    assert set(rare) <= {one.text for one in log.lines}
    assert sum(one.times for one in log.matching(".*severity=Corrected")) == MANY
    assert len(log.lines) < 2000


@run_each("line", FORGED)
@run_each("check", ["xid", "sxid", "programs", "pcie_errors", "rdma_log", "kernel"])
def test_a_forged_line_makes_no_host_unfit(line: str, check: str) -> None:
    judge(Row("forged", f"health.{check}", None, {"kernel_log": health_host.log(line)}, "pass", "none since"))
