"""`gpuprov show HOST --html`: what the page says, of a host, of a record, and of one that cannot be reached."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gpuprov.cli import cli
from gpuprov.core.errors import GpuprovError
from gpuprov.facts.collect.unreached import Unreached
from gpuprov.facts.probes.base import Facts, Output, Probe
from gpuprov.facts.probes.host import system
from gpuprov.host_page.changes import list_changes
from gpuprov.host_page.identify import list_gpus, list_rows
from gpuprov.host_page.kernel_log import list_lines
from gpuprov.host_page.page import judge, list_causes, list_of_spec, render
from gpuprov.host_page.read import ReadHost, read_host, require_one_host
from gpuprov.spec.model import HostSpec, RawHost
from gpuprov.verify.verify import unreachable
from tests.capabilities import health_host
from tests.host_page.example import host, spec

CAPTURE = Path(__file__).parents[1] / "real" / "h200-vm-under-load" / "host.capture.json"


def facts_of(page: ReadHost) -> Facts:
    assert isinstance(page.facts, Facts)
    return page.facts


def rows(page: ReadHost) -> dict[str, str]:
    return {row.label: row.value for row in list_rows(page, facts_of(page))}


def changes(page: ReadHost) -> dict[str, str]:
    return dict(list_changes(page, facts_of(page), list_of_spec(page)).rows)


# ---- the verdict
# -----------------------------------------------------------------------------------------------------------------
def test_the_headline_says_both_verdicts_and_the_next_boot() -> None:
    page = host()
    told = judge(page)
    assert told.sentence == "gpu017 is not fit for work: drain it; it matches its spec"
    assert (told.state, told.more) == ("fail", "Next boot: right: a reboot leaves it as it is.")
    well = host(kernel_log=health_host.log(), narrow=False)
    assert judge(well).sentence == "gpu017 is fit for work, and matches its spec"
    other = host(kernel_log=health_host.log(), loaded_driver="", narrow=False)
    told = judge(other)
    assert told.sentence.endswith("differs from its spec")
    assert told.state == "fail"


def test_what_is_not_proven_is_never_green() -> None:
    page = host(gpu_health=Output("", 1, "no answer"), kernel_log=health_host.log(), narrow=False)
    told = judge(page)
    assert told.state not in ("right", "part")
    assert "not proven to be fit" in told.sentence


def test_causes_come_with_what_follows_from_them() -> None:
    found = list_causes(host(packages="").results)
    assert found
    assert all(not one.result.follows for one in found)
    assert any(one.followers for one in found)


def test_a_host_that_cannot_be_reached_has_its_reason_and_no_facts() -> None:
    away = Unreached("gpu017", "no route to host", "see its console", command="ssh gpu017 true")
    page = ReadHost(raw=RawHost(name="gpu017"), spec=spec(), results=[unreachable("gpu017", away)], facts=away)
    text = render(page)
    assert "gpu017 cannot be reached" in text
    assert "no route to host" in text
    assert "What it is" not in text


# ---- what it is
# ------------------------------------------------------------------------------------------------------------------
def test_the_machine_its_boot_and_its_software() -> None:
    told = rows(host())
    assert told["machine"] == "Supermicro SYS-821GE-TNHR"
    assert (told["serial number"], told["board's serial"]) == ("S12345X", "UM23AS")
    assert told["booted"] == "2025-11-13 02:13 UTC, boot 6f1c0c3e-0000-4000-8000-000000000001"
    assert told["driver"] == "535.261.03, proprietary kernel modules"
    assert told["Fabric Manager"] == "535.261.03, running"
    assert told["groups"] == "train"
    assert rows(host(loaded_driver=""))["driver"] == "no NVIDIA module is loaded"


def test_what_was_not_read_says_why() -> None:
    page = host()
    lacking = Facts({name: text for name, text in facts_of(page).outputs().items() if name != "identity"})
    (row,) = [row for row in list_rows(page, lacking) if row.label == "machine"]
    assert row.unread
    assert "identity" in row.value


def test_an_identity_without_firmware_and_root() -> None:
    told = system.parse_identity(Output("name|node17\nvendor|\nserial|\nboot_id|\nbooted|never\nother|x\n"))
    assert (told.name, told.vendor, told.booted) == ("node17", "", 0)


def test_gpus_with_serial_numbers_and_those_that_nvidia_smi_does_not_show() -> None:
    smi = health_host.real("h200-vm-580-alone", present=8)
    gpus, missing = list_gpus(facts_of(host(gpu_health=smi)))
    (gpu,) = gpus
    assert gpu.serial == "0000000000000"
    assert gpu.uuid.startswith("GPU-")
    assert missing == "7 more GPUs on the PCI bus, which nvidia-smi does not show"
    assert list_gpus(facts_of(host(gpu_health=Output("@present 8\n", 127))))[1].startswith(
        "nvidia-smi is not installed"
    )


def test_a_driver_that_reports_no_recovery_is_not_said_to_need_nothing() -> None:
    old = re.sub(r".*GPU Recovery Action.*\n", "", health_host.real("h200-vm-580-alone"))
    assert list_gpus(facts_of(host(gpu_health=old)))[0][0].needs == "not reported"


# ---- what changed
# ----------------------------------------------------------------------------------------------------------------
def test_what_changed_and_what_it_can_go_back_to() -> None:
    told = changes(host())
    assert told["last apply"] == "2025-11-20T12:00:00Z with gpuprov 0.1.0"
    assert told["checkpoint"].startswith("2025-11-20T12:00:00Z, run 20251120T120000Z-1")
    assert told["packages"] == "1 package changed that no check minds"


def test_a_difference_without_a_known_cause_says_why() -> None:
    assert "no log" in changes(host(loaded_driver=""))["causes"]
    page = host(loaded_driver="")
    left = Facts({name: text for name, text in facts_of(page).outputs().items() if name != "package_history"})
    assert "package_history was not read" in dict(list_changes(page, left, list_of_spec(page)).rows)["causes"]


def test_without_a_receipt_nothing_is_claimed() -> None:
    page = host()
    left = Facts({name: text for name, text in facts_of(page).outputs().items() if name != "receipt"})
    told = list_changes(page, left, list_of_spec(page))
    assert told.unread.startswith("What was applied is not known")
    assert "never applied" not in render(ReadHost(raw=page.raw, spec=page.spec, results=page.results, facts=left))


# ---- the kernel log
# --------------------------------------------------------------------------------------------------------------
def test_lines_are_judged_as_health_and_explain_judge_them() -> None:
    lines, read = list_lines(facts_of(host()))
    assert [line.standing for line in lines] == ["reported", "unfit", "unfit"]
    assert "gpuprov explain 154" in lines[1].fix
    assert lines[1].health.startswith("health.xid fails")
    assert (lines[0].times, lines[0].device) == (2, "0000:19:00")
    assert read.startswith("read from journal, since")
    assert len({line.letter for line in lines}) == 2, "told without colour, too"
    unread = list_lines(facts_of(host(kernel_log=Output("", 127, "sh: awk: not found"))))
    assert unread[0] == []
    assert "missing" in unread[1]


def test_what_was_ended_is_past_and_has_no_fix() -> None:
    """The page says what health says: of what a reset or the driver's word ended nothing is to be done."""
    found = "nvidia-nvswitch: Probing device 0000:c4:00.0, Vendor Id = 0x10de, Device Id = 0x1af1, Class = 0x68000"
    none = health_host.NEEDS_NOTHING
    for end, words in ((found, ": reset 2025"), (none, "said that the GPU needs nothing, 2025")):
        log = health_host.log(health_host.GSP, health_host.NEEDS_RESET, end)
        of_xids = [line for line in list_lines(facts_of(host(kernel_log=log)))[0] if line.text not in (found, none)]
        assert {(line.standing, line.letter, line.fix) for line in of_xids} == {("past", "✓", "")}
        assert all(line.health.startswith("past for health.xid: ") for line in of_xids)
        assert all(words in line.health for line in of_xids)
    both = health_host.log(health_host.GSP, found, health_host.GSP)
    lines = [line for line in list_lines(facts_of(host(kernel_log=both)))[0] if line.text != found]
    assert [(line.standing, line.times, bool(line.fix)) for line in lines] == [("unfit", 1, True), ("past", 1, False)]


# ---- the command
# -----------------------------------------------------------------------------------------------------------------
def inventory(folder: Path) -> Path:
    file = folder / "site.yaml"
    blocks = {"gpu": {"model": "H200-SXM", "count": 1}, "topology": {}, "persistence": {}}
    file.write_text(json.dumps({"all": {"hosts": {"h200vm": {"gpuprov": blocks}, "other": {"gpuprov": blocks}}}}))
    return file


def test_the_page_of_a_record(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    words = ["show", "h200vm", str(inventory(tmp_path)), "--from", str(CAPTURE), "--html", str(file)]
    result = CliRunner().invoke(cli, words, catch_exceptions=False, standalone_mode=False)
    assert result.return_value == 1
    assert f"{file}: h200vm is not proven to be fit for work; it differs from its spec" in result.stderr
    text = file.read_text(encoding="utf-8")
    assert f"show h200vm {tmp_path / 'site.yaml'} --from {CAPTURE} --html {file}" in re.sub(r"</?span[^>]*>", "", text)
    assert "capture" in text
    assert "not from the host" in text
    assert "NVIDIA H200" in text
    assert "data:image/svg+xml;base64," in text


def test_a_page_that_is_not_green_is_no_success(tmp_path: Path) -> None:
    """Where the spec asks for no file and no unit, too: the listing alone would be green."""
    site = tmp_path / "site.yaml"
    site.write_text("all: {hosts: {h200vm: {gpuprov: {gpu: {model: H200-SXM, count: 1}, topology: {}}}}}")
    words = ["show", "h200vm", str(site), "--from", str(CAPTURE)]
    assert CliRunner().invoke(cli, words, standalone_mode=False).return_value == 0
    page = [*words, "--html", str(tmp_path / "page.html")]
    assert CliRunner().invoke(cli, page, standalone_mode=False).return_value == 1


def test_a_host_is_read_once_for_checks_listing_and_page(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[RawHost, tuple[Probe[Any], ...]]] = []

    def gather_each(
        hosts: list[tuple[RawHost, tuple[Probe[Any], ...]]], judge: Callable[[str, Facts], None], **_: Any
    ) -> None:
        asked.extend(hosts)
        judge(hosts[0][0].name, facts_of(host()))

    monkeypatch.setattr(sys.modules["gpuprov.verify.verify"], "gather_each", gather_each)
    found = read_host(RawHost(name="gpu017"), spec())
    ((_, probes),) = asked
    names = [probe.name for probe in probes]
    assert len(names) == len(set(names)), "each probe once"
    assert {"identity", "kernel_log", "checkpoints", "package_history", "topology_pci", "mig", "contents"} <= {*names}
    assert all(probe.asks is None for probe in probes if probe.name in ("contents", "kernel_log"))
    assert {one.capability for one in found.results} >= {"health", "nvidia_driver", "persistence"}
    assert [*found.spec.capabilities] == ["nvidia_driver", "persistence"]


def test_a_page_is_of_one_host(tmp_path: Path) -> None:
    pairs = [(RawHost(name=name), HostSpec(name=name)) for name in ("gpu1", "gpu2")]
    with pytest.raises(GpuprovError, match="--html is the page of one host, and HOST means 2: gpu1, gpu2"):
        require_one_host(pairs)
    words = ["show", "h200vm", str(inventory(tmp_path)), "--from", str(tmp_path), "--html", str(tmp_path / "a.html")]
    with pytest.raises(GpuprovError):
        CliRunner().invoke(cli, words, catch_exceptions=False, standalone_mode=False)
    assert not (tmp_path / "a.html").exists()


def test_a_capture_has_what_the_page_shows() -> None:
    from gpuprov.export.capture import probes

    assert {"identity", "checkpoints", "package_history", "receipt", "kernel_log"} <= {probe.name for probe in probes()}
