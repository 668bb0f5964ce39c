"""gpuprov show: what a host should have, how it has it, and the text of each file; of hosts and of records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from gpuprov.capabilities import BY_NAME
from gpuprov.capabilities.persistence.fragment import DAEMON, DROP_IN, LEGACY, LEGACY_FILE, Persistence
from gpuprov.cli import cli
from gpuprov.core.errors import GpuprovError
from gpuprov.host_code import lasting
from gpuprov.report import listing as report
from gpuprov.spec.model import Fragment, HostSpec
from gpuprov.verify.listing import Listing, listing, probes_of
from tests.capabilities import contents_host
from tests.capabilities.asking import facts, good
from tests.capabilities.specs import SPECS, block
from tests.rows import run_each

TIMER = "gpuprov-readings.timer"
SERVICE = "/etc/systemd/system/gpuprov-readings.service"
INVENTORY = "all: {hosts: {gpu1: {gpuprov: {persistence: {}, readings: {}}}, gpu2: {gpuprov: {nouveau: {}}}}}\n"


def listed(*names: str, block: Fragment | None = None, **changed: str) -> Listing:
    """Of the good host, which has these capabilities as they should be unless the facts say otherwise."""
    blocks: dict[str, Fragment] = {name: block or SPECS[name] for name in names}
    host = HostSpec(name="gpu1", capabilities=blocks)
    told = {key: text for key, text in good().items() if key != "contents"}
    whole = contents_host.whole(host, facts(**told))
    known = {probe.name for probe in probes_of(host, BY_NAME)}
    texts = {**told, "contents": whole, **changed}
    return listing(host, facts(**{key: text for key, text in texts.items() if key in known}), BY_NAME)


def test_a_host_that_has_all_of_it() -> None:
    found = listed("persistence", "readings")
    assert not [item for item in found.items if item.differs], found
    assert {(item.kind, item.name, item.wanted) for item in found.items} >= {
        ("file", LEGACY_FILE, "0644 root"),
        ("absent", DROP_IN, "absent"),
        ("unit", LEGACY, "enabled, active"),
        ("unit", DAEMON, "not enabled, stopped"),
    }
    text = report.as_text(found)
    assert DROP_IN not in text
    assert "all as it should be" in text


def test_what_differs_is_told_beside_what_should_be() -> None:
    found = listed("readings", contents=contents_host.nothing() + contents_host.unit(TIMER, "inactive", ""))
    assert {item.differs for item in found.items} == {"absent", "not-found"}
    assert f"{SERVICE}  0644 root  now: absent" in report.as_text(found).replace("    ", "  ")


def test_settings_and_modules_are_listed() -> None:
    found = {(item.kind, item.name): (item.wanted, item.differs) for item in listed("kernel").items}
    assert found["setting", "vm.swappiness"] == ("1", "60")
    assert found["setting", "login memlock"] == ("unlimited", "")
    assert found["module", "ib_umad"] == ("loaded, at each boot", "")
    assert found["module", "nouveau"] == ("kept out", "")
    modes = block("gpu_settings", {"compute_mode": "exclusive_process", "ecc": "disabled"})
    gpus = {item.name: item.wanted for item in listed("gpu_settings", block=modes).items if item.kind == "setting"}
    (one,) = (name.removesuffix(": compute mode") for name in gpus if name.endswith(": compute mode"))
    assert gpus[f"{one}: compute mode"] == "exclusive_process (takes idle devices)"
    assert gpus[f"{one}: ECC mode"] == "disabled"
    assert gpus[f"{one}: ECC mode after the next boot"] == "disabled (at the next boot)"
    assert "module   nouveau" in report.as_text(listed("nouveau", block=BY_NAME["nouveau"].fragment()))


def test_a_setting_that_cannot_be_read_is_not_known() -> None:
    found = listed("kernel", modprobe_config="", sysctl="")
    assert "kernel.sysctl" in found.unknown, found.unknown
    assert any(item.kind == "file" for item in found.items)


def test_a_file_is_shown_with_the_python_that_the_host_has() -> None:
    assert f"ExecStart={contents_host.INTERPRETER} -B" in report.text_of([listed("readings")], SERVICE)
    text = report.text_of([listed("readings", contents=contents_host.nothing())], SERVICE)
    assert "ExecStart=@PYTHON@ -B" in text
    assert "stands for the Python" in report.stands_for(text)


@run_each("name", SPECS)
def test_every_file_of_every_capability_has_a_text(name: str) -> None:
    for item in listed(name).items:
        if item.kind == "file":
            assert item.text, item
            assert report.text_of([listed(name)], item.name) == item.text


@run_each(
    ("name", "path", "told", "fix"),
    [
        ("readings", f"{SERVICE}s", "the specs do not ask for", f"did you mean {SERVICE}?"),
        ("readings", "/etc/passwd", "the specs do not ask for", "without --file lists them"),
        ("persistence", DROP_IN, "should not be there", "lists what should be"),
        ("persistence", DAEMON, "is a unit", "gpuprov plan"),
        ("kernel", "vm.swappiness", "is a setting", "gpuprov plan"),
        ("kernel", "ib_umad", "is a kernel module", "gpuprov plan"),
        ("fabric_manager", "/etc/nvidia-imex/config.cfg", "not of gpuprov's making alone", "gpuprov plan"),
    ],
)
def test_a_path_without_a_text_is_an_error(name: str, path: str, told: str, fix: str) -> None:
    with pytest.raises(GpuprovError) as raised:
        report.text_of([listed(name)], path)
    assert told in raised.value.message
    assert fix in raised.value.fix


def test_a_file_that_hosts_have_differently_is_refused() -> None:
    one = listed("readings")
    other = msgspec.structs.replace(listed("readings", contents=contents_host.nothing()), host="gpu2")
    with pytest.raises(GpuprovError, match="not the same on gpu1 and gpu2"):
        report.text_of([one, other], SERVICE)


def test_what_an_apply_brought_and_no_block_declares_is_named_and_is_no_difference() -> None:
    applied = lasting.Lasting("kernel.sysctl", "", "vm.swappiness", "1", "60", lasting.BOOT)
    entry = {"digest": "1", "resources": [lasting.format_setting(applied)]}
    found = listed("readings", receipt=json.dumps({"capabilities": {"kernel": entry}}))
    text = report.as_text(found)
    assert "gpu1  no longer asked for\n  kernel: vm.swappiness = 1 (before: 60)\n" in text
    assert "1 no longer asked for, all as it should be" in text
    (left,) = json.loads(report.document([found], {}))["hosts"][0]["left"]
    assert (left["name"], left["value"], left["before"], left["stays"]) == ("vm.swappiness", "1", "60", "")
    assert report.show([found], {}, path=None, as_json=False, verbose=False) == 0


def test_what_nobody_can_say_is_told_and_is_not_right() -> None:
    found = listed("persistence", block=Persistence(), persistenced="")
    assert "persistenced printed nothing" in found.unknown["persistence"]
    text = report.as_text(found)
    assert "not known: persistenced printed nothing" in text
    assert text.endswith("gpu1: 0 resources, not known of persistence")
    assert report.show([found], {}, path=None, as_json=False, verbose=False) == 1
    with pytest.raises(
        GpuprovError, match=r"whether the spec asks for .* is unknown: persistence of gpu1 \(persistenced printed"
    ):
        report.text_of([found], DROP_IN)
    assert report.show([found], {"gpu2": "gpu2: refused"}, path=DROP_IN, as_json=False, verbose=False) == 4


def run(tmp_path: Path, *words: str) -> Any:
    (tmp_path / "inventory.yaml").write_text(INVENTORY)
    return CliRunner().invoke(cli, ["show", *words, "-i", str(tmp_path / "inventory.yaml")], catch_exceptions=False)


def test_a_record_is_shown_without_a_host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a machine without gpuprov; its capture is older than the probe of gpuprov's files, and says nothing of
    them."""
    record = Path(__file__).parents[1] / "real" / "h200-vm-under-load" / "host.capture.json"
    (tmp_path / "inventory.yaml").write_text(INVENTORY)
    words = ["show", "gpu1", "-i", str(tmp_path / "inventory.yaml"), "--from", str(record), "--json"]
    assert cli.main(words, standalone_mode=False) == 1
    document = json.loads(capsys.readouterr().out)
    assert ([one["host"] for one in document["hosts"]], document["unread"]) == (["gpu1"], {})
    told = document["hosts"][0]
    assert set(told["unknown"]) | {item["capability"] for item in told["items"]} == {"persistence", "readings"}


@run_each(
    ("words", "told"),
    [(["gpu3"], 'HOST: no host or group matches "gpu3"'), (["gpu1", "--limit", "gpu2"], "have no host in common")],
)
def test_hosts_that_nobody_has_are_refused(tmp_path: Path, words: list[str], told: str) -> None:
    with pytest.raises(GpuprovError) as raised:
        run(tmp_path, *words)
    assert told in str(raised.value)


@run_each(
    ("words", "told"),
    [
        (["gpu1", "--file", "/x", "--json"], "one of them"),
        (["gpu1", "--only", "mig"], "--only: none of these hosts has mig"),
        (["gpu1", "--from", "RECORD", "--forks", "2"], "leave out --forks"),
    ],
)
def test_options_that_do_not_go_together_are_refused(tmp_path: Path, words: list[str], told: str) -> None:
    record = tmp_path / "record"
    record.write_text("x")
    done = run(tmp_path, *(str(record) if word == "RECORD" else word for word in words))
    assert done.exit_code == 2
    assert told in done.output
