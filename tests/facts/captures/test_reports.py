"""Records of hosts, read: what is in them becomes facts, what is not is skipped, and messages are explained."""

from __future__ import annotations

import gzip
import lzma
import tempfile
from functools import cache
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpuprov.core.errors import GpuprovError
from gpuprov.explain import in_record
from gpuprov.facts.captures import Record, RecordedFacts, read
from gpuprov.facts.probes.base import NotRecorded
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.gpus import fabric
from gpuprov.facts.probes.host import pci, system, systemd
from gpuprov.facts.probes.kernel import boot, modules
from gpuprov.facts.probes.software import packages
from gpuprov.fleet.specs import load_fleet
from gpuprov.spec.model import HostSpec, RawHost
from gpuprov.verify import recorded
from tests.facts.captures import reports
from tests.rows import run_each

SPEC = """
all:
  hosts:
    gpu017:
      gpuprov:
        gpu: {model: H200-SXM, count: 8}
        nouveau: {}
        nvidia_driver: {version: "580", kernel_modules: open, source: nvidia}
        persistence: {}
        fabric_manager: {}
    gpu018: {gpuprov: {persistence: {}}}
"""


@cache
def specs(text: str) -> tuple[tuple[RawHost, HostSpec], ...]:
    """The fleet of an inventory."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "inventory.yaml").write_text(text, encoding="utf-8")
        return tuple(load_fleet([f"{folder}/inventory.yaml"], None).pairs)


def fleet() -> tuple[tuple[RawHost, HostSpec], ...]:
    """The fleet of SPEC."""
    return specs(SPEC)


def only(path: Path) -> Record:
    (record,) = read(path)
    return record


@pytest.fixture
def bug_report(tmp_path: Path) -> Path:
    path = tmp_path / "nvidia-bug-report.log.gz"
    log = "Nov 19 14:02:49 gpu017 kernel: " + reports.real("row-remap-xid63", "dmesg.txt")
    path.write_bytes(gzip.compress(reports.bug_report(log).encode()))
    return path


def test_a_bug_report_tells_driver_gpus_and_fabric(bug_report: Path) -> None:
    record = only(bug_report)
    facts = RecordedFacts(record)
    assert (record.host, record.kind, record.read_at) == ("gpu017", "bug report", 1795097213)
    assert facts.get(nvidia.DRIVER) == nvidia.LoadedDriver("580.95.05", open=True)
    assert [gpu.driver for gpu in facts.get(nvidia.SMI).gpus] == ["580.95.05"] * 8
    assert facts.get(nvidia.SMI).gpus[0].bus == "0000:1b:00.0"
    assert len(pci.gpus(facts.get(pci.NVIDIA_FUNCTIONS))) == 8
    assert [gpu.ill() for gpu in facts.get(fabric.STATE)][:2] == [("Health Unhealthy", "Bandwidth: Full"), ()]
    assert facts.get(boot.COMMAND_LINE)["iommu"] == "pt"
    assert facts.get(system.PLATFORM).kernel == "5.14.0-570.el9.x86_64"
    with pytest.raises(NotRecorded, match="not in this bug report: packages"):
        facts.get(packages.PACKAGES)


def test_a_host_is_judged_by_its_bug_report(bug_report: Path) -> None:
    results = recorded.verify(fleet(), read(bug_report))
    assert recorded.left_out(fleet(), results) == ["gpu018"], "of which nothing is said, and which is named"
    found = {one.check: one for one in results}
    assert {one.host for one in results} == {"gpu017"}
    assert found["fabric_manager.registered"].status == "fail"
    assert "Unhealthy" in found["fabric_manager.registered"].found
    assert found["persistence.mode_on"].status == "pass"
    assert found["nvidia_driver.held"].status == "skip"
    assert found["nvidia_driver.held"].found.startswith("not in this bug report")
    assert "error" not in {one.status for one in results}


@pytest.mark.parametrize(
    ("said", "check", "found"),
    [
        ('version: "570"', "nvidia_driver.loaded", "580.95.05"),
        ('version: "580.105.08"', "nvidia_driver.loaded", "580.95.05"),
        ('version: "580", kernel_modules: proprietary', "nvidia_driver.flavour", "loaded: open"),
        ('version: "580"', "nvidia_driver.loaded", ""),
        ("version: any", "nvidia_driver.loaded", ""),
    ],
)
def test_a_record_that_shows_another_driver_is_not_as_wanted(
    bug_report: Path, said: str, check: str, found: str
) -> None:
    """Though it has no packages, by which all else is judged."""
    inventory = SPEC.replace('version: "580", kernel_modules: open, source: nvidia', said)
    results = {one.check: one for one in recorded.verify(specs(inventory), read(bug_report))}
    assert results[check].status == ("fail" if found else "skip"), results[check]
    assert found in results[check].found


def test_a_driver_that_was_not_loaded_is_a_fact(tmp_path: Path) -> None:
    path = tmp_path / "report.log"
    text = reports.bug_report().replace(reports.real("version-580-open", "proc-driver-nvidia-version.txt"), "")
    head = "*** /proc/driver/nvidia/./version\n"
    first = text.index(head)
    path.write_text(text[: first + len(head) - 1] + " does not exist\n" + text[text.index("\n", first + len(head)) :])
    assert RecordedFacts(only(path)).get(nvidia.DRIVER).version == ""


def test_messages_in_a_record_are_explained_the_most_telling_first(bug_report: Path) -> None:
    first = in_record(only(bug_report))[0]
    assert "63" in first.name or "63" in dict(first.lines)["seen"]
    assert dict(first.lines)["seen"].startswith(f"1 time in {bug_report}: Nov 19 14:02:49 gpu017 kernel: NVRM: Xid")


def test_a_record_without_known_messages_says_so(tmp_path: Path) -> None:
    path = tmp_path / "report.log"
    path.write_text(reports.bug_report("all is well\n"), encoding="utf-8")
    with pytest.raises(GpuprovError, match="holds no message that gpuprov knows"):
        in_record(only(path))


@run_each("form", ["folder", "tar.gz", "tar.xz", "inside"])
def test_an_sosreport_as_folder_and_as_archive(tmp_path: Path, form: str) -> None:
    path = tmp_path / "sosreport-gpu017"
    if form in ("folder", "inside"):
        for name, text in reports.sosreport().items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_text(text, encoding="utf-8")
        path = tmp_path if form == "inside" else path
    else:
        path = tmp_path / "a.tar"
        path.write_bytes(reports.tarball({**reports.sosreport()}, f"w:{form[4:]}", "sosreport-gpu017-2026-11-19/"))
    record = only(path)
    facts = RecordedFacts(record)
    assert (record.host, record.kind) == ("gpu017.dc1.example.com", "sosreport")
    assert facts.get(system.OS_RELEASE).id == "debian"
    assert facts.get(nvidia.DRIVER).version == "580.95.05"
    assert {one.driver for one in facts.get(pci.NVIDIA_FUNCTIONS)} == {"nvidia"}
    assert facts.get(modules.LOADED) == {"nvidia": 12}
    assert facts.get(boot.SYSCTL)["vm.swappiness"] == "10"
    installed = facts.get(packages.PACKAGES)
    assert (installed["libnvidia-ml1"].version, installed["libnvidia-ml1"].held) == ("580.95.05-1", True)
    units = facts.get(systemd.SYSTEMD_UNITS)
    assert (units["nvidia-persistenced.service"].active, units["nvidia-persistenced.service"].file) == (
        "active",
        "enabled",
    )
    assert (units["nvidia-fabricmanager.service"].load, units["nvidia-fabricmanager.service"].file) == (
        "loaded",
        "disabled",
    )
    assert units["gpuprov-persistence.service"].load == "not-found"
    assert "not read at all" not in record.text
    assert {one.status for one in recorded.verify(fleet(), [record])} <= {"pass", "fail", "skip", "n/a"}


def test_a_must_gather_has_a_record_for_each_node(tmp_path: Path) -> None:
    members: dict[str, str | bytes] = {
        f"must-gather/nvidia-bug-report_{node}.log.gz": gzip.compress(
            reports.bug_report(name="driver-daemonset-x").encode()
        )
        for node in ("gpu018", "gpu017")
    }
    members["must-gather/gpu_operand_pod_x.log"] = "could not select device driver\n"
    path = tmp_path / "gather.tgz"
    path.write_bytes(reports.tarball(members))
    assert [record.host for record in read(path)] == ["gpu017", "gpu018"]
    results = recorded.verify(fleet(), read(path))
    assert {one.host for one in results} == {"gpu017", "gpu018"}
    assert recorded.left_out(fleet(), results) == []


def pair(name: str) -> tuple[RawHost, HostSpec]:
    raw, spec = fleet()[1]
    return replace(raw, name=name), replace(spec, name=name)


@run_each(
    ("called", "fleet", "expected"),
    [
        ("gpu017", ("gpu017", "gpu018"), "gpu017"),
        ("gpu017.dc1.example.com", ("gpu017", "gpu018"), "gpu017"),
        ("gpu017", ("gpu017.dc1.example.com", "gpu018.dc1.example.com"), "gpu017.dc1.example.com"),
        ("", ("gpu017",), "gpu017"),
        ("ip-10-0-0-1", ("gpu017",), None),
        ("ip-10-0-0-1", ("gpu017", "gpu018"), None),
        ("", ("gpu017", "gpu018"), None),
        ("gpu017", ("gpu017.a", "gpu017.b"), None),
    ],
)
def test_whose_record_it_is(called: str, fleet: tuple[str, ...], expected: str | None) -> None:
    pairs = [pair(name) for name in fleet]
    record = Record(host=called, path="report.log", kind="bug report", outputs={})
    if len(fleet) == 1:
        assert {one.host for one in recorded.verify(pairs, [record], named=True)} == {"gpu017"}, "by --limit"
    if expected:
        assert {one.host for one in recorded.verify(pairs, [record])} == {expected}
        return
    with pytest.raises(GpuprovError, match=r"report\.log .* the inventory has") as caught:
        recorded.verify(pairs, [record])
    assert caught.value.fix == "say which host it is: --limit HOST"


def test_two_records_of_one_host_are_refused(bug_report: Path) -> None:
    with pytest.raises(GpuprovError, match="are both records of gpu017"):
        recorded.verify(fleet(), [*read(bug_report), *read(bug_report)])


def test_an_xz_file_of_two_streams_is_read_whole(tmp_path: Path) -> None:
    text = reports.bug_report().encode()
    path = tmp_path / "report.xz"
    path.write_bytes(lzma.compress(text[:1000]) + lzma.compress(text[1000:]))
    assert RecordedFacts(only(path)).get(nvidia.DRIVER).version == "580.95.05"


def test_a_report_of_one_file_that_is_too_large_is_told(tmp_path: Path) -> None:
    file = tmp_path / "sosreport-x" / "sos_commands" / "kernel" / "dmesg"
    file.parent.mkdir(parents=True)
    with file.open("wb") as made:
        made.truncate((64 << 20) + 1)
    with pytest.raises(GpuprovError, match=r"cannot be read: .*kernel/dmesg: .*64 MiB"):
        read(tmp_path)
