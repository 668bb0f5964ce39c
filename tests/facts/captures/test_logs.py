"""Health of a host by a kernel log alone, in each form that people save, and by nvidia-smi -q alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpuprov.core.errors import GpuprovError
from gpuprov.facts.captures import RecordedFacts, logs, read
from gpuprov.facts.probes.kernel.kernel_log import KERNEL_LOG
from gpuprov.facts.probes.kernel.stamps import read_stamp, resolve_deltas
from gpuprov.verify import recorded
from gpuprov.verify.evaluate import Result
from tests.facts.captures import reports
from tests.facts.captures.test_reports import only, specs
from tests.rows import run_each

SPEC = "all: {hosts: {gpu017: {gpuprov: {health: {}}}}}\n"
VERSION = "Linux version 6.1.0-47-amd64 (debian-kernel@lists.debian.org)"
LOST = "NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
UNCONTAINED = "NVRM: Xid (PCI:0000:1b:00): 95, pid=4711, Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No"
AT = 1_795_096_969  # 2026-11-19 14:02:49 UTC


def as_dmesg(second: int, line: str) -> str:
    return f"[{second:5d}.250000] {line}"


def as_dated(second: int, line: str) -> str:
    return f"[Thu Nov 19 14:02:{49 + second:02d} 2026] {line}"


def as_levels(second: int, line: str) -> str:
    return f"kern  :err   : [{second:5d}.250000] {line}"


def as_caller(second: int, line: str) -> str:
    return f"<3>[{second:5d}.250000][  T912] {line}"


def as_short(second: int, line: str) -> str:
    return f"Nov 19 14:02:{49 + second:02d} gpu017 kernel: {line}"


def as_precise(second: int, line: str) -> str:
    return f"Nov 19 14:02:{49 + second:02d}.123456 gpu017 kernel: {line}"


def as_iso(second: int, line: str) -> str:
    return f"2026-11-19T15:02:{49 + second:02d}+01:00 gpu017 kernel: {line}"


def as_full(second: int, line: str) -> str:
    return f"Thu 2026-11-19 14:02:{49 + second:02d} UTC gpu017 kernel: {line}"


def as_talos(second: int, line: str) -> str:
    return f"gpu017: kern: warning: [2026-11-19T14:02:{49 + second:02d}.494604223Z]: {line}"


def as_human(second: int, line: str) -> str:
    return f"[Nov19 14:02] {line}" if second == 0 else f"[  +0.000844] {line}"


def as_monotonic(second: int, line: str) -> str:
    return f"[   {second}.495505] kernel: {line}"


def as_unix(second: int, line: str) -> str:
    return f"{AT + second}.123456 gpu017 kernel: {line}"


def as_syslog(second: int, line: str) -> str:
    return f"Nov 19 14:02:{49 + second:02d} gpu017 kernel: [{second:5d}.250000] {line}"


def as_json(second: int, line: str, boot: str = "b") -> str:
    fields = {"__REALTIME_TIMESTAMP": f"{AT + second}123456", "_TRANSPORT": "kernel", "_BOOT_ID": boot}
    return json.dumps(fields | {"_HOSTNAME": "gpu017", "MESSAGE": line, "PRIORITY": "3"})


FORMS = [
    as_dmesg, as_dated, as_levels, as_caller, as_short, as_precise, as_iso, as_full, as_unix, as_syslog, as_json,
    as_talos,
    as_human, as_monotonic,
]  # fmt: skip


def found(path: Path) -> dict[str, Result]:
    return {one.check: one for one in recorded.verify(specs(SPEC), read(path))}


@run_each("form", FORMS)
def test_a_log_is_judged_in_each_form(tmp_path: Path, form: object) -> None:
    assert callable(form)
    path = tmp_path / "saved"
    lines = [form(0, VERSION), form(1, "usb 1-1: new device"), form(2, LOST), form(3, "usb 1-1: gone")]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    record = only(path)
    assert (record.kind, record.host) == ("kernel log", "" if "[" in lines[0][:16] else "gpu017")
    log = RecordedFacts(record).get(KERNEL_LOG)
    assert [line.text for line in log.lines] == [VERSION, "usb 1-1: new device", LOST, "usb 1-1: gone"]
    assert log.whole
    times = [line.at for line in log.lines]
    assert times == sorted(times)
    assert round(times[2]) in (2, AT + 2, AT - 49), "in UTC, or since the boot; dmesg -H omits the seconds"
    results = found(path)
    assert (results["health.xid"].status, results["health.xid"].action) == ("fail", "reboot")
    assert results["health.kernel"].status == "pass"
    assert results["health.gpus"].found == "not in this kernel log: gpu_health"


BOOTS = {
    "short": ("-- Boot 5d2f --", as_short),
    "old": ("-- Reboot --", as_short),
    "dmesg": (as_short(1, "x"), as_short),
}


@run_each("name", BOOTS)
def test_what_was_before_the_last_boot_is_past(tmp_path: Path, name: str) -> None:
    between, form = BOOTS[name]
    path = tmp_path / "saved"
    rows = [form(0, VERSION), form(1, UNCONTAINED), between, form(4, VERSION), form(5, "usb 1-1: new device")]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    assert found(path)["health.xid"].status == "pass"
    path.write_text("\n".join([*rows, form(6, LOST)]) + "\n", encoding="utf-8")
    assert found(path)["health.xid"].action == "reboot"
    assert "Xid 95" not in found(path)["health.xid"].found


def test_boots_of_a_journal_as_json_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "saved"
    path.write_text("\n".join((as_json(0, UNCONTAINED, "a"), as_json(1, VERSION, "b"), as_json(2, "x", "b"))) + "\n")
    assert found(path)["health.xid"].status == "pass"
    damaged = as_json(3, LOST, "b")[:-9]
    path.write_text("\n".join((as_json(1, VERSION, "b"), damaged, as_json(2, "x", "b"))) + "\n")
    assert found(path)["health.xid"].status == "pass", "a line that breaks off is none"


def test_a_program_is_not_the_kernel(tmp_path: Path) -> None:
    path = tmp_path / "saved"
    forged = as_short(2, LOST).replace("kernel:", "python3[7]:")
    path.write_text("\n".join((as_short(0, VERSION), forged)) + "\n", encoding="utf-8")
    assert found(path)["health.xid"].status == "pass"


@run_each(
    "text",
    [
        "a poem\nof two lines\n",
        "note: NVRM fell\nfix: none\n",
        "NVRM: Xid (PCI:0000:19:00): 79, x\n" + "a poem\n" * 3,
        "Nov 19 14:02:49 gpu017 sshd[1]: x\nNov 19 14:02:50 gpu017 sshd[1]: y\n",
        "{\n",
    ],
)
def test_other_texts_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "saved").write_text(text, encoding="utf-8")
    with pytest.raises(GpuprovError, match="cannot be read"):
        read(tmp_path / "saved")


def test_times_of_dmesg_in_a_persons_form_are_counted_on() -> None:
    lines = [
        "[Feb29 23:59] a",
        "[  +0.500000] b",
        "[ +61.750000] c",
        "[Mar 1 04:05] d",
        "[Feb31 01:00] e",
        "[May 2 99:99] f",
    ]
    found = [read_stamp(line, 2028) for line in resolve_deltas(lines)]
    assert [one.text for one in found] == ["a", "b", "c", "d", "e", "f"]
    assert [(one.at or 0) - (found[0].at or 0) for one in found[:4]] == [0, 0, 62, 4 * 3600 + 5 * 60 + 60]
    assert list(resolve_deltas(["[  +0.000844] a"])) == ["[  +0.000844] a"], "nobody knows since when"


def test_a_stamp_of_a_day_that_the_year_has_not_gives_no_time() -> None:
    assert read_stamp("Feb 29 10:00:00 gpu017 kernel: x", 2027).at is None
    assert logs.kernel_log("Feb 30 10:00:00 gpu017 kernel: x\n", 1e9) is None


UNTIMED = """\
NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 16 09:55:41 UTC 2025
NVRM: Xid (PCI:0000:19:00): 119, pid=1234, name=python, Timeout after 6s of waiting for RPC response from GPU0 GSP!
NVRM: Xid (PCI:0000:19:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)
usb 1-1: new high-speed USB device number 2 using xhci_hcd
NVRM: Xid (PCI:0000:19:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)
kernel: NVRM: Xid (PCI:0000:3b:00): 48, pid=77, name=python, An uncorrectable double bit error (DBE) has been detected
"""
"""Plain dmesg of a kernel with printk.time=0."""


def test_a_log_without_stamps_has_the_order_of_its_lines(tmp_path: Path) -> None:
    """What a later line ends is past, whenever that was; nothing is said of times, nor of what came before."""
    (tmp_path / "saved").write_text(UNTIMED, encoding="utf-8")
    assert only(tmp_path / "saved").kind == "kernel log"
    results = found(tmp_path / "saved")
    assert results["health.xid"].status == "fail"
    assert results["health.xid"].found.startswith("Xid 48 on 0000:3b:00, at an unknown time")
    assert results["health.kernel_log"].status == "skip"
    assert "without times: the order of its lines is known" in results["health.kernel_log"].found
    (tmp_path / "saved").write_text(UNTIMED.rpartition("kernel: ")[0], encoding="utf-8")
    assert found(tmp_path / "saved")["health.xid"].found.startswith("none in a log without times")
    boot = "Linux version 6.1.0-47-amd64\n"
    (tmp_path / "saved").write_text(
        f"{UNTIMED}{boot}NVRM: loading NVIDIA UNIX x86_64 Kernel Module\n", encoding="utf-8"
    )
    assert found(tmp_path / "saved")["health.xid"].status == "pass", "before the boot"


@run_each("stamp", ["août 25 19:38:03", "11月 16 13:31:02", "дек 01 00:00:01", "Dez 24 00:00:01", "nov. 03 01:02:03.5"])
def test_a_journal_in_another_language_has_the_order_of_its_lines(tmp_path: Path, stamp: str) -> None:
    """Of https://github.com/marwank270/nvidia-bug-report: journalctl prints months in the language of who asks."""
    texts = ("kernel: Linux version 5.18.0", "ufw[1]: x", f"kernel: {LOST}", "kernel: [UFW AUDIT] IN= OUT=lo")
    (tmp_path / "saved").write_text("".join(f"{stamp} gpu017 {text}\n" for text in texts), encoding="utf-8")
    assert only(tmp_path / "saved").host == "gpu017"
    assert found(tmp_path / "saved")["health.xid"].found.startswith("Xid 79 on 0000:1b:00, at an unknown time")


@run_each("mark", ["> ", " ", "> > ", "    "])
def test_a_log_as_a_message_quotes_it(tmp_path: Path, mark: str) -> None:
    """Of https://github.com/NVIDIA/open-gpu-kernel-modules/issues/795 and a thread of kvm@vger.kernel.org."""
    for lines in ((f"[ 1.5] {LOST}", "[ 2.5] usb 1-1: x"), (f"kernel: {LOST}", "kernel: usb 1-1: x")):
        (tmp_path / "saved").write_text("".join(f"{mark}{line}\n{mark.strip()}\n" for line in lines), encoding="utf-8")
        assert found(tmp_path / "saved")["health.xid"].found.startswith("Xid 79 on 0000:1b:00")


def test_a_programs_own_log_is_not_the_kernels(tmp_path: Path) -> None:
    """Of https://github.com/NVIDIA/DCGM/issues/303: times, and neither a host nor a program's name."""
    text = "2026-06-10 03:10:16.478 ERROR [69:98] [[Profiling]] Got error from GetSamples: -37\n"
    (tmp_path / "saved").write_text(text * 3, encoding="utf-8")
    with pytest.raises(GpuprovError, match="without lines of the kernel"):
        read(tmp_path / "saved")


def test_a_line_of_december_read_in_january_is_of_the_year_before() -> None:
    output = logs.kernel_log("Dec 31 23:59:59 gpu017 kernel: x\n", 1_798_761_600.0) or ""
    assert "line|1798761599.000000" in output


def test_nvidia_smi_alone_is_judged_without_the_bus(tmp_path: Path) -> None:
    path = tmp_path / "saved"
    path.write_text(reports.smi_q().replace("Unhealthy", "Healthy"), encoding="utf-8")
    results = found(path)
    assert only(path).kind == "nvidia-smi -q"
    assert results["health.gpus"].found == "8 GPUs in nvidia-smi -q; the record does not hold the PCI bus"
    assert results["health.xid"].found == "not in this nvidia-smi -q: kernel_log"
    line = "    Persistence Mode                      : Enabled\n"
    path.write_text(path.read_text().replace(line, f"{line}    GPU Recovery Action : OS Reboot\n", 1))
    assert (found(path)["health.recovery"].status, found(path)["health.recovery"].action) == ("fail", "reboot")


def test_a_journal_in_an_sosreport_is_read_where_dmesg_has_lost_the_boot(tmp_path: Path) -> None:
    members = reports.sosreport() | {
        "sos_commands/kernel/dmesg": f"{as_dmesg(90, 'usb 1-1: new device')}\n",
        "sos_commands/date/date": "Thu Nov 19 14:06:53 UTC 2026\n",
        "sos_commands/logs/journalctl_--no-pager": "\n".join(
            (as_short(0, UNCONTAINED), "-- Boot 5d2f --", as_short(1, VERSION), as_short(2, LOST), "")
        ),
    }
    for name, text in members.items():
        place = tmp_path / "sosreport-gpu017" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    results = found(tmp_path)
    assert (results["health.xid"].status, results["health.xid"].action) == ("fail", "reboot")
    assert "2026-11-19 14:02 UTC" in results["health.xid"].found
    assert "Xid 95" not in results["health.xid"].found, "of the boot before"
    assert results["health.kernel_log"].status == "pass"
