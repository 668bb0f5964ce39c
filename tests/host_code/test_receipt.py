"""What a host remembers of applies."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuprov.host_code import lasting, receipt
from tests.host_code.modules import on_host, ran

RUN = {"run": "0a1b2c3d", "since": "2026-11-21T08:00:00Z"}
Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "lib"
    for name, file in (("FOLDER", ""), ("RECEIPT", "/receipt.json"), ("MARK", "/applying.json")):
        monkeypatch.setattr(on_host("receipt"), name, f"{place}{file}")
    return place


@pytest.fixture
def ask(folder: Path, capsys: pytest.CaptureFixture[str]) -> Ask:
    return lambda state, names, **more: ran(capsys, "gpuprov_receipt", state=state, capabilities=names, run=RUN, **more)


def marked(folder: Path) -> list[str]:
    found: list[str] = json.loads((folder / "applying.json").read_text())["capabilities"]
    return found


def test_what_is_begun_is_marked_until_it_is_applied(folder: Path, ask: Ask) -> None:
    assert ask("begun", ["kernel"])["changed"] is False
    assert json.loads((folder / "applying.json").read_text()) == {**RUN, "capabilities": ["kernel"]}
    assert ask("applied", ["kernel"], digests={"kernel": "1", "mig": "2"}, version="1.2")["fresh"] == ["kernel"]
    receipt = json.loads((folder / "receipt.json").read_text())
    assert (receipt["schema"], receipt["gpuprov_version"]) == (2, "1.2")
    assert {name: entry["digest"] for name, entry in receipt["capabilities"].items()} == {"kernel": "1"}
    assert [path.name for path in folder.iterdir()] == ["receipt.json"]
    assert (folder / "receipt.json").stat().st_mode & 0o777 == 0o644


def test_each_apply_leaves_its_time_and_only_what_is_new_is_a_change(folder: Path, ask: Ask) -> None:
    ask("applied", ["kernel", "mig"], digests={"kernel": "1", "mig": "1"})
    path = folder / "receipt.json"
    path.write_text(re.sub(r'(applied_at": ")[^"]+', r"\g<1>2025-01-01T00:00:00Z", path.read_text()))
    again = ask("applied", ["kernel"], digests={"kernel": "1"})
    assert (again["changed"], again["fresh"]) == (False, [])
    found = json.loads(path.read_text())
    times = {name: one["applied_at"][:4] for name, one in found["capabilities"].items()}
    assert (times["mig"], times["kernel"] > "2025", found["applied_at"] > "2025-02") == ("2025", True, True)


def test_it_lists_what_each_capability_brought_with_the_sums_of_its_files(
    tmp_path: Path, folder: Path, ask: Ask
) -> None:
    there, link = tmp_path / "there.conf", tmp_path / "link.conf"
    there.write_text("options nvidia\n")
    link.symlink_to(there)
    given = [f"file {there}", f"file {link}", f"file {tmp_path}/none.conf", "unit gpuprov-pcie.service", "hold cuda"]
    ask("applied", ["kernel"], digests={"kernel": "1"}, resources={"kernel": given})

    def listed() -> list[str]:
        found: list[str] = json.loads((folder / "receipt.json").read_text())["capabilities"]["kernel"]["resources"]
        return found

    digest = hashlib.sha256(b"options nvidia\n").hexdigest()
    expected = [f"file {digest} {there}", "unit gpuprov-pcie.service", "hold cuda"]
    assert listed() == expected, "what is not a file of ours is not listed"
    ask("applied", ["kernel"], digests={"kernel": "2"})
    assert listed() == expected, "an apply that lists nothing forgets nothing"
    ask("applied", ["kernel"], digests={"kernel": "2"}, resources={"kernel": []})
    assert listed() == expected[:1], "a file that is still there is not forgotten by an apply that does not want it"
    there.write_text("another\n")
    ask("applied", ["kernel"], digests={"kernel": "2"}, resources={"kernel": ["unit x.service"]})
    assert listed() == ["unit x.service"], "what others changed is theirs"


def setting(name: str, value: str, before: str = "", until: str = lasting.BOOT, left: str = "") -> str:
    return lasting.format_setting(lasting.Lasting("kernel.sysctl", "", name, value, before, until, left))


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ([], [setting("a", "1", "60")], [setting("a", "1", "60")]),
        ([setting("a", "1", "60")], [setting("a", "2", "1")], [setting("a", "2", "60")]),
        ([setting("a", "1")], [setting("a", "1", "7")], [setting("a", "1")]),
        ([setting("a", "1", "60")], [], [setting("a", "1", "60", left="now")]),
        ([setting("a", "1", left="now")], [], [setting("a", "1", left="now")]),
        ([setting("a", "1", left="then")], [], []),
        (
            [setting("a", "1", until=lasting.AGAIN, left="then")],
            [],
            [setting("a", "1", until=lasting.AGAIN, left="then")],
        ),
        ([setting("a", "1", "60", left="then")], [setting("a", "1")], [setting("a", "1", "60")]),
        ([setting("a", "1", "60")], [f"{lasting.UNREAD}kernel.sysctl"], [setting("a", "1", "60")]),
    ],
    ids=[
        *("first", "another-value", "not-known-at-first", "no-longer-declared", "named-on", "over", "kept-by-a-card"),
        *("again", "not-read"),
    ],
)
def test_settings_stay_listed_with_the_value_before_the_first_apply(
    folder: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch, before: list[str], now: list[str], expected: list[str]
) -> None:
    folder.mkdir()
    (folder / "boot_id").write_text("now\n")
    monkeypatch.setattr(on_host("receipt"), "BOOT_ID", f"{folder}/boot_id")
    old = {"digest": "1", "applied_at": "2026-01-01T00:00:00Z", "resources": before}
    (folder / "receipt.json").write_text(json.dumps({"schema": 2, "capabilities": {"kernel": old}}))
    ask("applied", ["kernel"], digests={"kernel": "2"}, resources={"kernel": now})
    assert json.loads((folder / "receipt.json").read_text())["capabilities"]["kernel"]["resources"] == expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [("60", "60"), ("1", "60"), ("", "60"), ("70", "70")],
    ids=["cut off before it was set", "cut off after, another value declared", "cut off after", "changed by the site"],
)
def test_the_value_before_an_apply_that_was_cut_off_is_the_one_before(
    folder: Path, ask: Ask, found: str, expected: str
) -> None:
    value = "2" if found == "1" else "1"
    ask("begun", ["kernel"], changing={"kernel": [setting("a", "1", "60")]})
    ask("begun", ["mps"], known=["kernel", "mps"])
    ask("begun", ["kernel"], changing={"kernel": [setting("a", value, found)]} if found else {})
    ask("applied", ["kernel"], digests={"kernel": "1"}, resources={"kernel": [setting("a", value, found)]})
    entry = json.loads((folder / "receipt.json").read_text())["capabilities"]["kernel"]
    assert entry["resources"] == [setting("a", value, expected)]


def test_a_setting_that_is_declared_no_longer_after_an_apply_that_was_cut_off_is_left_listed(
    folder: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.mkdir()
    (folder / "boot_id").write_text("now\n")
    monkeypatch.setattr(on_host("receipt"), "BOOT_ID", f"{folder}/boot_id")
    ask("begun", ["kernel"], changing={"kernel": [setting("a", "1", "60")]})
    ask("applied", ["kernel"], digests={"kernel": "2"}, resources={"kernel": []})
    entry = json.loads((folder / "receipt.json").read_text())["capabilities"]["kernel"]
    assert entry["resources"] == [setting("a", "1", "60", left="now")]


def test_an_entry_of_an_earlier_gpuprov_is_told_from_one_that_brought_nothing(folder: Path, ask: Ask) -> None:
    folder.mkdir()
    old = {"digest": "1", "applied_at": "2026-01-01T00:00:00Z"}
    (folder / "receipt.json").write_text(json.dumps({"schema": 1, "capabilities": {"mps": old, "pcie": old}}))
    ask("applied", ["pcie"], digests={"pcie": "2"}, resources={"pcie": []})
    entries = json.loads((folder / "receipt.json").read_text())["capabilities"]
    assert entries["mps"] == old
    assert entries["pcie"]["resources"] == []


def test_what_was_taken_away_is_forgotten(folder: Path, ask: Ask) -> None:
    ask("applied", ["kernel", "mps"], digests={"kernel": "1", "mps": "1"})
    would = ask("applied", [], forgotten=["mps", "mig"], check=True)
    assert (would["changed"], would["gone"]) == (True, ["mps"])
    done = ask("applied", ["kernel"], digests={"kernel": "1"}, forgotten=["mps", "mig"])
    assert (done["changed"], done["fresh"], done["gone"]) == (True, [], ["mps"])
    assert list(json.loads((folder / "receipt.json").read_text())["capabilities"]) == ["kernel"]


def test_what_a_run_left_half_way_stays_marked_until_it_is_applied(folder: Path, ask: Ask) -> None:
    everything = ["kernel", "mig", "mps"]
    ask("begun", everything)
    assert ask("begun", ["kernel"], known=["kernel", "mig"])["half"] == ["mig"], "mps is asked for no more"
    assert marked(folder) == ["kernel", "mig"]
    ask("applied", ["kernel"], digests={})
    assert marked(folder) == ["mig"]
    ask("begun", ["mig"], known=["kernel", "mig"])
    ask("applied", ["mig"], digests={})
    assert not (folder / "applying.json").exists()


@pytest.mark.parametrize("text", ['{"capabilities": ["mig", "ker', '{"capabilities": 3, "mig": 1}', "[]"])
def test_a_damaged_mark_says_what_it_can(folder: Path, ask: Ask, text: str) -> None:
    folder.mkdir()
    (folder / "applying.json").write_text(text)
    half = ask("begun", ["kernel"], known=["kernel", "mig"])["half"]
    assert half == (["mig"] if "mig" in text else [])


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"capabilities": {"kernel": 3}}', '{"capabilities": {"kernel": {"digest": "1"}}}']
)
def test_a_damaged_receipt_is_put_aside_with_a_warning(folder: Path, ask: Ask, text: str) -> None:
    folder.mkdir()
    (folder / "receipt.json").write_text(text)
    found = ask("applied", ["mig"], digests={"mig": "1"})
    assert "the receipt could not be read" in str(found["warnings"])
    assert (folder / "receipt.json.damaged").read_text() == text
    assert list(json.loads((folder / "receipt.json").read_text())["capabilities"]) == ["mig"]


def test_check_mode_says_what_would_be_new_and_writes_nothing(folder: Path, ask: Ask) -> None:
    assert ask("begun", ["kernel"], check=True)["half"] == []
    found = ask("applied", ["kernel"], digests={"kernel": "1"}, check=True)
    assert (found["changed"], found["fresh"]) == (True, ["kernel"])
    assert not folder.exists()


def test_what_a_receipt_promises_is_on_disk_before_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power cut a receipt said that a driver was applied whose modules were empty files (campaign 19:62)."""
    monkeypatch.setattr(receipt, "RECEIPT", str(tmp_path / "receipt.json"))
    monkeypatch.setattr(receipt, "MARK", str(tmp_path / "applying.json"))
    seen: list[tuple[bool, str]] = []
    monkeypatch.setattr(receipt, "settle", lambda paths: seen.append((os.path.exists(receipt.RECEIPT), paths[1])))
    receipt.merge_applied({}, ["kernel"], {"kernel": "a"}, "0", check=True)
    assert seen == []
    receipt.merge_applied({}, ["kernel"], {"kernel": "a"}, "0")
    assert seen == [(False, "/usr")]
    assert (tmp_path / "receipt.json").exists()
