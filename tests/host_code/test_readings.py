"""The program that takes readings: what changed is kept, bounded, and whole after a call that was cut off."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuprov.host_code import readings

AT = [f"2026-11-24T{hour:02}:00:00Z" for hour in range(24)]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(readings, "ROOT", str(tmp_path))
    monkeypatch.setattr(readings, "FOLDER", str(tmp_path / "readings"))
    monkeypatch.setattr(readings, "read_units", lambda: iter([("unit:docker.service", ["enabled active"])]))
    monkeypatch.setattr(readings, "read_packages", lambda: iter([("package:tzdata", ["2024a"])]))
    (tmp_path / "etc/modprobe.d").mkdir(parents=True)
    (tmp_path / "etc/modprobe.d/gpuprov.conf").write_text("blacklist nouveau\n")
    return tmp_path


def kept(root: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (root / "readings/changes.jsonl").read_text().splitlines()]


def test_a_file_that_was_edited_and_one_that_was_removed(root: Path) -> None:
    path = root / "etc/modprobe.d/gpuprov.conf"
    assert readings.take(90, AT[0]).startswith("the first reading")
    assert "0 of" in readings.take(90, AT[1])
    path.write_text("# nothing\n")
    os.utime(path, (1_700_000_000, 1_700_000_000))
    readings.take(90, AT[2])
    path.unlink()
    readings.take(90, AT[3])
    edited, removed = kept(root)
    assert (edited["from"], edited["to"]) == (AT[1], AT[2])
    old, new, stamp, owner = edited["changed"]["file:/etc/modprobe.d/gpuprov.conf"]
    assert (old != new, stamp, owner) == (True, 1_700_000_000, os.getuid())
    assert removed["changed"] == {"file:/etc/modprobe.d/gpuprov.conf": [new, ""]}
    assert "nouveau" not in (root / "readings/last.json").read_text(), "the contents of a file are not kept"


def test_packages_and_units(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readings.take(90, AT[0])
    monkeypatch.setattr(readings, "read_units", lambda: iter([("unit:docker.service", ["enabled inactive"])]))
    monkeypatch.setattr(readings, "read_packages", lambda: iter([("package:tzdata", ["2025b"])]))
    readings.take(90, AT[1])
    (line,) = kept(root)
    assert line["changed"] == {
        "package:tzdata": ["2024a", "2025b"],
        "unit:docker.service": ["enabled active", "enabled inactive"],
    }


def test_a_call_that_was_cut_off_tells_nothing_twice(root: Path) -> None:
    readings.take(90, AT[0])
    last = (root / "readings/last.json").read_bytes()
    (root / "etc/modprobe.d/gpuprov.conf").unlink()
    readings.take(90, AT[1])
    (root / "readings/last.json").write_bytes(last)  # as if it had ended between the two files
    readings.take(90, AT[2])
    assert [(one["from"], one["to"]) for one in kept(root)] == [(AT[0], AT[2])]


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"at": 5, "values": {}}'])
def test_a_damaged_reading_is_told_and_a_new_one_begins(root: Path, damage: str) -> None:
    readings.take(90, AT[0])
    (root / "readings/last.json").write_text(damage)
    (root / "readings/changes.jsonl").write_text("\x00\xff{\n[1]\n")
    assert "damaged" in readings.take(90, AT[1])
    assert [one["lost"][:28] for one in kept(root)] == ["the last reading was damaged"]
    assert "0 of" in readings.take(90, AT[2])


def test_what_is_old_goes(root: Path) -> None:
    path = root / "etc/modprobe.d/gpuprov.conf"
    for day, text in (("20", "a"), ("21", "b"), ("24", "c")):
        path.write_text(text)
        readings.take(2, f"2026-11-{day}T00:00:00Z")
    assert [one["to"][:10] for one in kept(root)] == ["2026-11-24"]


def changed_at(root: Path, *times: str) -> list[str]:
    """When each change was seen, after looks at these times, each with a change."""
    for at in times:
        (root / "etc/modprobe.d/gpuprov.conf").write_text(at)
        readings.take(90, at)
    return [one["to"] for one in kept(root) if one["changed"]]


def test_a_clock_that_was_wrong_for_a_while_costs_no_reading(root: Path) -> None:
    ahead = ["2036-11-23T10:00:00Z", "2036-11-23T11:00:00Z", "2026-11-23T12:00:00Z"]
    assert changed_at(root, AT[0], AT[1], *ahead) == [AT[1], *ahead]


def test_what_changed_at_a_boot_with_a_dead_battery_is_kept(root: Path) -> None:
    behind = ["2000-01-01T00:00:20Z", "2026-11-25T10:00:00Z"]
    assert changed_at(root, AT[0], AT[1], *behind) == [AT[1], *behind]
    later = ["2027-02-20T00:00:00Z", "2027-02-25T00:00:00Z"]
    assert changed_at(root, *later) == later, "and goes when it is old"


def test_a_host_that_was_off_for_long_keeps_what_was_before_for_as_long_again(root: Path) -> None:
    seen = changed_at(root, AT[0], AT[1], "2027-06-01T00:00:00Z", "2027-08-29T00:00:00Z")
    assert seen == [AT[1], "2027-06-01T00:00:00Z", "2027-08-29T00:00:00Z"]
    assert changed_at(root, "2027-08-31T00:00:00Z") == ["2027-08-29T00:00:00Z", "2027-08-31T00:00:00Z"]


def test_a_unit_that_stops_is_not_called_by_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for state, told in (("deactivating", "deactivating"), ("activating", "active"), ("reloading", "active")):
        shown = f"Id=docker.service\nActiveState={state}\nUnitFileState=enabled\n"
        monkeypatch.setattr(readings, "_run", lambda *_, shown=shown: shown)
        assert list(readings.read_units()) == [("unit:docker.service", [f"enabled {told}"])]


def test_a_link_is_not_followed(root: Path) -> None:
    secret = root / "secret"
    secret.write_text("x")
    path = root / "etc/modprobe.d/link.conf"
    path.symlink_to(secret)
    assert readings.look()["file:/etc/modprobe.d/link.conf"][0] == f"-> {secret}"


def test_only_root_reads_them_and_a_failure_is_said(tmp_path: Path) -> None:
    environment = {**os.environ, "GPUPROV_ROOT": str(tmp_path), "PATH": "/nowhere"}
    program = [sys.executable, "-B", readings.__file__]
    done = subprocess.run([*program, "90"], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("readings: no reading was taken: ")
    assert not (tmp_path / "var/lib/gpuprov/readings/last.json").exists(), "half a reading is none"
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "systemctl").write_text(
        "#!/bin/sh\nprintf 'Id=a.service\\nActiveState=active\\nUnitFileState=enabled\\n'\n"
    )
    (tools / "systemctl").chmod(0o755)
    environment["PATH"] = f"{tools}:/usr/bin:/bin"
    done = subprocess.run([*program, "90"], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("the first reading: ")
    folder = tmp_path / "var/lib/gpuprov/readings"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


def test_counters_of_ports_are_kept_for_two_days(root: Path) -> None:
    counters = root / "sys/class/infiniband/mlx5_0/ports/1/counters"
    readings.take(90, AT[0])
    assert not (root / "readings/counters.jsonl").exists(), "there is no RDMA device"
    counters.mkdir(parents=True)
    for name, text in {"symbol_error": "12\n", "link_error_recovery": "N/A\n", "port_rcv_data": "7\n"}.items():
        (counters / name).write_text(text)
    readings.take(90, AT[1])
    (counters / "symbol_error").write_text("15\n")
    readings.take(90, AT[2])
    file = root / "readings/counters.jsonl"
    assert [json.loads(line) for line in file.read_text().splitlines()] == [
        {"at": AT[1], "ports": {"mlx5_0/1": {"symbol_error": 12}}},
        {"at": AT[2], "ports": {"mlx5_0/1": {"symbol_error": 15}}},
    ]
    file.write_text(file.read_text() + '{"at": 7}\n{"at": "2026-1\n[]\n')  # as a full disk and others leave it
    readings.take(90, "2026-11-26T01:30:00Z")
    assert [json.loads(line)["at"] for line in file.read_text().splitlines()] == [AT[2], "2026-11-26T01:30:00Z"]
    assert "0 of" in readings.take(90, "2026-11-26T02:30:00Z"), "counters are not changes for drift"
