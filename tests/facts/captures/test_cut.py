"""Records that were cut off: what may be missing is neither passed nor failed, and nothing is advised because of it."""

from __future__ import annotations

import gzip
import lzma
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuprov.cli import cli
from gpuprov.facts.captures import RecordedFacts, bug_report, read
from gpuprov.facts.probes.base import NotRecorded, Output, ProbeFailed
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.gpus.gpu_health import GPU_HEALTH
from gpuprov.facts.probes.host import pci
from gpuprov.facts.probes.kernel import boot
from gpuprov.facts.probes.kernel.kernel_log import KERNEL_LOG
from gpuprov.verify import recorded
from tests.facts.captures import reports
from tests.facts.captures.test_health import DMESG, XID, health, with_section, written
from tests.facts.captures.test_plain import DOWN, XML
from tests.facts.captures.test_reports import only, specs
from tests.rows import run_each

HEALTH = "all: {hosts: {gpu017: {gpuprov: {health: {}}}}}\n"


def whole() -> str:
    """A report with dmesg before nvidia-smi -q and after it other things."""
    return with_section("dmesg:", f"{DMESG}{XID}\n").replace("Attached GPUs : 8", "Attached GPUs                 : 8")


def cut(text: str, mark: str, *, nth: int = 1) -> str:
    """The text up to the middle of what follows this mark."""
    at = -1
    for _ in range(nth):
        at = text.index(mark, at + 1)
    return text[: at + len(mark) + 7]


def plain(data: bytes) -> bytes:
    return data


@run_each("pack", [plain, gzip.compress, lzma.compress])
def test_a_list_of_gpus_that_breaks_off_says_nothing_of_the_others(
    tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "nvidia-bug-report.log"
    path.write_bytes(pack(cut(whole(), "\nGPU 0000", nth=4).encode()))
    (record,) = read(path)
    assert record.cut == f'it has no line "{bug_report.END}", and breaks off in nvidia-smi -q'
    results = recorded.verify(specs(HEALTH), [record])
    found = {one.check: one for one in results if one.check.startswith("health.")}
    assert {one.status for one in found.values()} <= {"skip", "n/a"}
    assert {one.action for one in found.values()} == {""}
    assert found["health.gpus"].found == "not in this bug report, which is incomplete: gpu_health"
    facts = RecordedFacts(record)
    assert len(pci.gpus(facts.get(pci.NVIDIA_FUNCTIONS))) == 8, "what stands before it is whole"
    assert facts.get(nvidia.DRIVER).version == "580.95.05"


def test_a_kernel_log_that_breaks_off_passes_nothing(tmp_path: Path) -> None:
    path = written(tmp_path, cut(whole(), "Linux version"))
    with pytest.raises(NotRecorded, match=r"^not in this bug report, which is incomplete: kernel_log$"):
        RecordedFacts(only(path)).get(KERNEL_LOG)
    assert "health.xid" not in health(tmp_path)[1]["passed"]


def test_where_it_breaks_off_in_its_first_lines_no_name_is_half_a_name(tmp_path: Path) -> None:
    path = written(tmp_path, cut(reports.bug_report(), "uname: Linux g"))
    assert only(path).host == ""


def test_fewer_gpus_than_are_attached_are_no_whole_list(tmp_path: Path) -> None:
    text = whole()
    third, end = (
        text.index("GPU 00000000", text.index("Attached GPUs") + 2000),
        text.index("\n\n/usr/bin/nvidia-smi --query --unit"),
    )
    record = only(written(tmp_path, text[:third] + text[end:]))
    assert record.cut.startswith("nvidia-smi -q says that 8 GPUs are attached, and shows ")
    with pytest.raises(NotRecorded, match="incomplete: gpu_health"):
        RecordedFacts(record).get(GPU_HEALTH)
    told = text[:third] + "Unable to determine the device handle for GPU0000:43:00.0: Unknown Error\n" + text[end:]
    assert not only(written(tmp_path, told)).cut, "a GPU that is lost is not a gap in the record"


H200 = (Path(__file__).parents[2] / "real" / "h200-vm-580-alone" / "nvidia-smi-q.txt").read_text(encoding="utf-8")
LAST = H200[H200.index("GPU 0") :].replace("GPU 00000000:00:06.0", "GPU 00000000:99:00.0", 1)
TWO = re.sub(r"(Attached GPUs +: )1", r"\g<1>2", H200) + LAST
"""Two of the real one."""


@run_each(
    "mark", ["Product Name", "oduct Name", "FB Memory Usage", "Remapping Failure", "Clock Policy", "    Processes"]
)
def test_a_list_that_breaks_off_in_its_last_gpu_is_not_whole(tmp_path: Path, mark: str) -> None:
    path = tmp_path / "smi.txt"
    path.write_text(TWO)
    assert not only(path).cut
    for text in (TWO[: TWO.rindex(mark)], H200[: H200.index(mark)]):
        path.write_text(text)
        record = only(path)
        assert "nvidia-smi -q breaks off in GPU 00000000:" in record.cut
        found = {one.check: one.status for one in recorded.verify(specs(HEALTH), [record])}
        assert found["health.remapped_rows"] == "skip"


def test_what_nvidia_smi_shows_in_part_on_request_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "smi.txt"
    path.write_text(
        "==============NVSMI LOG==============\n\nDriver Version                  : 580.1\n\n"
        "Attached GPUs                   : 1\nGPU 00000000:8B:00.0\n    Remapped Rows\n"
        "        Correctable Error       : 0\n        Uncorrectable Error     : 0\n"
        "        Pending                 : No\n        Remapping Failure Occurred : No\n"
    )
    assert not only(path).cut


def test_a_live_list_that_ends_with_its_time_is_none() -> None:
    text = f"@present 8\n@given 0\n@smi\n{reports.smi_q().replace('Attached GPUs : 8', 'Attached GPUs        : 9')}"
    with pytest.raises(ProbeFailed, match="says that 9 GPUs are attached, and shows 8 within 50 s"):
        GPU_HEALTH.parse(Output(text, 124))


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz"])
@pytest.mark.parametrize("share", [0.5, 0.8, 0.95])
def test_an_sosreport_that_was_cut_off_is_read_as_far_as_it_is_whole(tmp_path: Path, mode: str, share: float) -> None:
    path = tmp_path / "sosreport.tar"
    members = {
        "sos_commands/host/hostname": "gpu017\n",
        "etc/security/limits.conf": "* soft nofile 1\n",
        **{f"sos_commands/kernel/{number}": str(number) * 5000 for number in range(40)},
        **reports.sosreport(),
    }
    data = reports.tarball({**members}, mode, "sosreport-gpu017/")
    path.write_bytes(data)
    assert not only(path).cut
    assert RecordedFacts(only(path)).get(boot.LOGIN_LIMITS)
    path.write_bytes(data[: int(len(data) * share)])
    record = only(path)
    assert record.cut == "the archive that it is from was cut off"
    with pytest.raises(NotRecorded, match="incomplete: login_limits"):
        RecordedFacts(record).get(boot.LOGIN_LIMITS)


def test_a_must_gather_that_was_cut_off_is_told_of_each_node(tmp_path: Path) -> None:
    path = tmp_path / "gather.tar"
    names = [f"must-gather/nvidia-bug-report_{node}.log" for node in ("gpu017", "gpu018")]
    data = reports.tarball(dict.fromkeys(names, reports.bug_report()), "w")
    path.write_bytes(data[: len(data) * 3 // 4])
    assert [(record.host, bool(record.cut)) for record in read(path)] == [("gpu017", True)]


def test_a_broken_file_of_one_of_many_hosts_is_a_record_that_cannot_be_read(tmp_path: Path) -> None:
    for name, text in (("gpu017", XML), ("gpu018", XML), ("gpu019", XML[:900])):
        (tmp_path / f"{name}.smi.xml").write_text(text)
    records = read(tmp_path)
    assert [(one.host, bool(one.fault)) for one in records] == [("gpu017", False), ("gpu018", False), ("gpu019", True)]
    inventory = tmp_path / "inventory.yaml"
    inventory.write_text("all: {vars: {gpuprov: {health: {ecc: any}}}, hosts: {'gpu[017:019]': {}}}\n")
    for command in ("health", "verify"):
        result = CliRunner().invoke(cli, [command, str(inventory), "--from", str(tmp_path)], standalone_mode=False)
        assert result.return_value not in (0, None)
        assert "not well-formed" in result.output
        assert "no record is of them" not in result.output


def test_a_broken_file_of_one_host_makes_its_record_incomplete(tmp_path: Path) -> None:
    (tmp_path / "smi.xml").write_text(XML[:900])
    (tmp_path / "dmesg.log").write_text(DOWN)
    (record,) = read(tmp_path)
    assert "smi: it is not well-formed" in record.cut
    assert (
        "which is incomplete: gpu_health"
        in {one.check: one.found for one in recorded.verify(specs(HEALTH), [record])}["health.gpus"]
    )
