"""Health of a host by its record: what it holds is judged, and of what it does not two different things are said."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gpuprov.cli import cli
from gpuprov.core.errors import GpuprovError
from gpuprov.explain import in_record
from gpuprov.facts.captures import RecordedFacts, read
from gpuprov.facts.probes.base import NotRecorded
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.gpus.gpu_processes import PROCESSES
from gpuprov.facts.probes.host import pci, system
from gpuprov.facts.probes.kernel.kernel_log import KERNEL_LOG
from gpuprov.facts.probes.software import packages
from gpuprov.verify import recorded
from tests.facts.captures import reports
from tests.facts.captures.test_reports import only, specs
from tests.rows import run_each

INVENTORY = "all: {hosts: {gpu017: {gpuprov: {gpu: {model: H200-SXM, count: 8}, persistence: {}}}}}\n"
FIRST = "1b:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H200 SXM 141GB] [10de:2335] (rev a1)"
XID = "[ 4711.250000] NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
DMESG = "[    0.000000] Linux version 5.14.0-570.el9.x86_64 (mockbuild@x86)\n[    1.100000] pci 0000:00:00.0: x\n"


def written(folder: Path, text: str) -> Path:
    (folder / "inventory.yaml").write_text(INVENTORY, encoding="utf-8")
    path = folder / "nvidia-bug-report.log"
    path.write_text(text, encoding="utf-8")
    return path


def health(folder: Path) -> tuple[int, dict[str, Any]]:
    """The exit code, and the host of the document."""
    path = str(folder / "nvidia-bug-report.log")
    done = CliRunner().invoke(
        cli, ["health", str(folder / "inventory.yaml"), "--from", path, "--json"], standalone_mode=False
    )
    return done.return_value, json.loads(done.stdout)["hosts"][0]


def with_section(command: str, text: str) -> str:
    """A report that has this command, too."""
    end = f"{reports.RULE}\n\nEnd of NVIDIA"
    return reports.bug_report().replace(end, f"{reports.RULE}\n\n{command}\n\n{text}\n{end}")


def test_what_nvidia_smi_says_in_a_report_is_judged(tmp_path: Path) -> None:
    written(tmp_path, reports.bug_report().replace("Unhealthy", "Healthy"))
    code, host = health(tmp_path)
    assert (code, host["fit"]) == (1, "not proven")
    assert "health.gpus" in host["passed"]


def test_a_gpu_that_needs_something_is_not_fit(tmp_path: Path) -> None:
    line = "    Persistence Mode                      : Enabled\n"
    written(tmp_path, reports.bug_report().replace(line, f"{line}    GPU Recovery Action : OS Reboot\n", 1))
    code, host = health(tmp_path)
    assert (code, host["fit"], host["action"]) == (1, "until", "reboot")


HEADER = "\n\t!!! Unknown header type 7f"


@run_each("shown", [" (rev ff)", f" (rev ff) (prog-if ff){HEADER}", HEADER])
def test_a_gpu_that_does_not_answer_on_the_bus_is_none(tmp_path: Path, shown: str) -> None:
    text = reports.bug_report()
    line = next(one for one in text.splitlines() if "1b:00.0 3D controller" in one)
    path = written(tmp_path, text.replace(line, line.replace(" (rev a1)", shown)))
    functions = RecordedFacts(only(path)).get(pci.NVIDIA_FUNCTIONS)
    assert [one.address for one in functions if one.gone] == ["0000:1b:00.0"]
    found = {one.check: one for one in recorded.verify(specs(INVENTORY), read(path))}["host.gpu"]
    assert (found.status, found.action) == ("fail", "reboot")
    assert "0000:1b:00.0 is on the bus, and does not answer" in found.found
    assert health(tmp_path)[1]["action"] == "reboot"


@run_each("heading", ["dmesg:", "/bin/dmesg", "/usr/bin/dmesg", "/run/current-system/sw/bin/dmesg"])
def test_its_kernel_log_is_judged_without_a_clock(tmp_path: Path, heading: str) -> None:
    written(tmp_path, with_section(heading, f"{DMESG}{XID}\n"))
    _, host = health(tmp_path)
    assert (host["fit"], host["action"]) == ("until", "reboot")
    (cause,) = [one for one in host["causes"] if one["check"] == "health.xid"]
    assert "Xid 79 on 0000:1b:00, 4711 s after the boot" in cause["found"]


def test_the_hosts_own_files_in_an_admin_container_are_its_own(tmp_path: Path) -> None:
    """As the script of Bottlerocket's admin container names them."""
    path = written(
        tmp_path, with_section("*** /.bottlerocket/rootfs/etc/os-release", "ID=bottlerocket\nVERSION_ID=1.40.0")
    )
    assert RecordedFacts(only(path)).get(system.OS_RELEASE).id == "bottlerocket"


def test_a_file_that_could_not_be_read_is_neither_empty_nor_absent(tmp_path: Path) -> None:
    text = reports.bug_report()
    head = "*** /proc/driver/nvidia/./version"
    written(tmp_path, text.replace(f"{head}\n", f"{head} is not readable\n"))
    with pytest.raises(NotRecorded, match="not in this bug report: loaded_driver"):
        RecordedFacts(only(tmp_path / "nvidia-bug-report.log")).get(nvidia.DRIVER)


@run_each("text", ["", "[1.5] NVRM: x\nNVRM: y\nNVRM: z\n"])
def test_a_log_without_times_is_none(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, with_section("/usr/bin/dmesg", text))
    with pytest.raises(NotRecorded, match="not in this bug report: kernel_log"):
        RecordedFacts(only(path)).get(KERNEL_LOG)


def test_errors_of_nvlinks_are_judged(tmp_path: Path) -> None:
    links = (
        "GPU 0: NVIDIA H200 (UUID: x)\n\t Link 0: Replay Errors: 0\n\t Link 0: Recovery Errors: 7\n\t Link 0: "
        "CRC Errors: 0"
    )
    text = with_section("/usr/bin/nvidia-smi nvlink --errorcounters", links)
    written(tmp_path, text.replace("Unhealthy", "Healthy"))
    assert [one["check"] for one in health(tmp_path)[1]["causes"]] == ["health.nvlink_errors"]


def test_an_sosreport_has_nvidia_smi_and_the_kernel_log(tmp_path: Path) -> None:
    members = reports.sosreport() | {
        "sos_commands/nvidia/nvidia-smi_-q": reports.smi_q(),
        "sos_commands/nvidia/nvidia-smi_nvlink_-e": "GPU 0: NVIDIA H200 (UUID: x)\n\t Link 0: Replay Errors: 9\n",
        "sos_commands/kernel/dmesg": f"{DMESG}{XID}\n",
    }
    path = tmp_path / "sosreport-gpu017.tar.gz"
    path.write_bytes(reports.tarball({**members}, folder="sosreport-gpu017-2026-11-19/"))
    spec = "all: {hosts: {gpu017: {gpuprov: {health: {}}}}}\n"
    found = {one.check: one.status for one in recorded.verify(specs(spec), read(path))}
    assert (found["health.gpus"], found["health.xid"], found["health.nvlink_errors"]) == ("pass", "fail", "fail")


def test_what_a_record_lacks_and_what_gpuprov_does_not_read_are_two_things(tmp_path: Path) -> None:
    facts = RecordedFacts(only(written(tmp_path, reports.bug_report())))
    with pytest.raises(NotRecorded, match=r"^not in this bug report: packages$"):
        facts.get(packages.PACKAGES)
    with pytest.raises(NotRecorded, match=r"^gpuprov does not read this from a bug report: gpu_processes$"):
        facts.get(PROCESSES)


def test_a_record_has_no_since(tmp_path: Path) -> None:
    written(tmp_path, reports.bug_report())
    path = str(tmp_path / "nvidia-bug-report.log")
    done = CliRunner().invoke(
        cli, ["health", str(tmp_path / "inventory.yaml"), "--from", path, "--since", "24h"], standalone_mode=False
    )
    assert isinstance(done.exception, GpuprovError)
    assert "leave --since out" in done.exception.fix


def searched(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)


def test_nvidias_lines_of_the_journal_are_enough_for_xids_and_for_nothing_else(tmp_path: Path) -> None:
    loaded = "Nov 19 13:00:01 gpu017 kernel: NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05"
    xid = "Nov 19 14:02:49 gpu017 kernel: NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', GPU has fallen off the bus."
    before = searched("", "  journalctl -b -1:", xid.replace("): 79", "): 48"))
    path = written(tmp_path, reports.bug_report(searched(loaded, xid) + before))
    spec = "all: {hosts: {gpu017: {gpuprov: {health: {}}}}}\n"
    found = {one.check: one for one in recorded.verify(specs(spec), read(path))}
    assert (found["health.xid"].status, found["health.xid"].action) == ("fail", "reboot")
    assert "Xid 79 on 0000:1b:00, 2026-11-19 14:02 UTC" in found["health.xid"].found
    assert "Xid 48" not in found["health.xid"].found, "of the boot before"
    assert found["health.sxid"].status == "pass"
    for check in ("kernel_log", "pcie_errors", "kernel", "programs"):
        assert found[f"health.{check}"].status == "skip", check
        assert "NVIDIA's lines" in found[f"health.{check}"].found
    written(tmp_path, reports.bug_report(searched(loaded)))
    assert "health.xid" in health(tmp_path)[1]["passed"]


GONE = (
    "NVRM: The NVIDIA GPU 0000:b3:00.0",
    "NVRM: (PCI ID: 10de:26b5) installed in this system has",
    "NVRM: fallen off the bus and is not responding to commands.",
)
"""Lines of https://github.com/NVIDIA/NVSentinel/issues/155."""
WHOLE = (
    "NVRM: The NVIDIA GPU 0000:b3:00.0 (PCI ID: 10de:26b5) installed in this system has fallen off the bus and is not"
)


@pytest.mark.parametrize("indented", [True, False], ids=["indented", "stamped"])
@pytest.mark.parametrize("place", ["dmesg", "journal"])
def test_a_message_of_several_lines_is_one(tmp_path: Path, place: str, indented: bool) -> None:
    stamp = "[ 1843.308145] " if place == "dmesg" else "Nov 19 14:02:49 gpu017 kernel: "
    lines = "".join(f"{' ' * len(stamp) if indented and number else stamp}{one}\n" for number, one in enumerate(GONE))
    text = with_section("dmesg:", DMESG + lines) if place == "dmesg" else reports.bug_report(lines)
    path = written(tmp_path, text)
    spec = "all: {hosts: {gpu017: {gpuprov: {health: {}}}}}\n"
    found = {one.check: one for one in recorded.verify(specs(spec), read(path))}["health.driver_log"]
    assert (found.status, found.action) == ("fail", "reboot")
    assert WHOLE in found.found
    assert WHOLE in dict(in_record(only(path))[0].lines)["seen"]


def test_a_search_that_found_nothing_proves_nothing(tmp_path: Path) -> None:
    """The driver says that it was loaded: a journal without that line was not read."""
    path = written(tmp_path, reports.bug_report("all is well\n"))
    with pytest.raises(NotRecorded, match="not in this bug report: kernel_log"):
        RecordedFacts(only(path)).get(KERNEL_LOG)


LINK = """    PCI
        GPU Link Info
            Link Width
                Max                           : 16x
                Current                       : {}x
"""


def wide(*widths: int) -> str:
    """A report whose GPUs have links of so many lanes, and are well in their fabric."""
    head, *gpus = reports.bug_report().replace("Unhealthy", "Healthy").split("    GSP Firmware Version")
    made = (f"{LINK.format(width)}    GSP Firmware Version{gpu}" for width, gpu in zip(widths, gpus, strict=True))
    return head + "".join(made)


@run_each(
    ("widths", "found"),
    [((16,) * 8, ""), ((16, 16, 8, 16, 16, 16, 16, 16), "the PCIe link of 0000:"), ((8,) * 8, "")],
    ids=["wide", "one narrow", "all alike"],
)
def test_a_gpu_whose_link_is_narrower_than_its_likes_is_found_without_the_kernels_files(
    tmp_path: Path, widths: tuple[int, ...], found: str
) -> None:
    written(tmp_path, wide(*widths))
    host = health(tmp_path)[1]
    told = [one["found"] for one in host["causes"] if one["check"] == "health.pcie_links"]
    assert [one[: len(found)] for one in told] == ([found] if found else [])
    assert "health.pcie_links" not in host["passed"], "ports, adapters and speeds are not known"


@run_each(
    ("changed", "found"),
    [
        ({}, ""),
        ({"Summary": "Unhealthy"}, "Health Unhealthy"),
        ({"Summary": "Limited Capacity"}, "Health Limited Capacity"),
        ({"State": "In Progress"}, "In Progress"),
    ],
)
def test_the_fabrics_state_is_judged_where_the_daemon_is_not_recorded(
    tmp_path: Path, changed: dict[str, str], found: str
) -> None:
    text = reports.bug_report().replace("Unhealthy", "Healthy")
    for name, value in changed.items():
        text, count = re.subn(rf"(?m)^( +{name} +: ).*$", rf"\g<1>{value}", text, count=1)
        assert count
    written(tmp_path, text)
    host = health(tmp_path)[1]
    told = [one["found"] for one in host["causes"] if one["check"] == "health.fabric"]
    assert len(told) == bool(found)
    assert all(found in one for one in told)
    assert "health.fabric" not in host["passed"], "whether Fabric Manager lives is not known"


def test_a_driver_that_knows_of_no_fabric_leaves_nothing_unread(tmp_path: Path) -> None:
    """nvidia-smi of drivers before R525 prints no block Fabric."""
    text = re.sub(r"(?m)^    Fabric\n(        .*\n)+", "", reports.bug_report())
    assert "Fabric\n" not in text
    written(tmp_path, text)
    assert "health.fabric" not in [cause["check"] for cause in health(tmp_path)[1]["causes"]]
