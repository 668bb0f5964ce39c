"""The first boot: what it brings about, when it runs, what keeps it from a machine, what it reports."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpuprov.bake import finish, first_boot, place
from gpuprov.bake.ensure import ensure as bring_about
from gpuprov.core.errors import GpuprovError
from gpuprov.facts.probes.base import Facts, Output
from gpuprov.facts.probes.host.contents import Contents, Entry
from gpuprov.fleet.specs import judge
from gpuprov.host_code import lock, process, receipt, systemd, units, wanted_units
from gpuprov.host_code.unit_files import Loaded
from gpuprov.jobs import cut, frozen, stored
from gpuprov.pull.bundles import make_local_job
from gpuprov.report.files import write_atomic
from gpuprov.resources import Absent, File, Resource, Unit
from gpuprov.spec.model import HostSpec, RawHost

SPEC: dict[str, Any] = {"fabric_manager": {}, "nvidia_driver": {"version": "580"}}
NOTHING: Mapping[str, Any] = {
    "units": {},
    "drop_ins": {},
    "texts": {},
    "pythons": {},
    "sound": frozenset(),
    "ends": {},
}
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="files are root's")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What systemctl was called with; every unit is stopped and off."""
    made: list[str] = []

    def systemctl(*words: str) -> tuple[int, str, str]:
        made.append(" ".join(words))
        return 0, "", ""

    monkeypatch.setattr(systemd, "systemctl", systemctl)
    monkeypatch.setattr(
        wanted_units, "look", lambda names: {name: Loaded(load="loaded", file="disabled") for name in names}
    )
    return made


@root_only
def test_what_differs_is_brought_about(tmp_path: Path, calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    wanted, right, gone = tmp_path / "wanted", tmp_path / "right", tmp_path / "gone"
    right.write_text("as it is", encoding="utf-8")
    gone.touch()
    entries = {str(gone): Entry("f", 0o644, 0, 0)}
    contents = Contents(entries=entries, missing=frozenset({str(wanted)}), **NOTHING)

    def restart(name: str) -> tuple[int, list[str]]:
        calls.append(f"restart {name}")
        return 0, []

    monkeypatch.setattr(units, "restart", restart)
    resources: list[Resource] = [
        File(str(wanted), "new\n"),
        Absent(str(gone)),
        Unit(name="x.service", enabled=True, active=True),
    ]
    made = bring_about(resources, contents)
    assert wanted.read_text(encoding="utf-8") == "new\n"
    assert not gone.exists()
    assert right.read_text(encoding="utf-8") == "as it is"
    assert calls == ["daemon-reload", "enable -- x.service", "restart x.service"]
    assert made == [str(wanted), str(gone), "x.service: disabled -> enabled", "x.service: inactive -> active"]


def test_what_is_right_is_left_alone(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    up = {"x.service": Loaded(load="loaded", active="active", file="enabled")}
    monkeypatch.setattr(wanted_units, "look", lambda names: {name: up[name] for name in names})
    contents = Contents(entries={}, missing=frozenset(), **NOTHING)
    assert bring_about([Unit(name="x.service", enabled=True, active=True)], contents) == []
    assert calls == []


def test_a_unit_that_does_not_start_says_why(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "restart", lambda _: (1, ["mig: GPU 0 is lost"]))
    contents = Contents(entries={}, missing=frozenset(), **NOTHING)
    with pytest.raises(GpuprovError, match=r"x\.service does not start: mig: GPU 0 is lost") as raised:
        bring_about([Unit(name="x.service", active=True)], contents)
    assert "journalctl -u x.service" in raised.value.fix
    assert calls == []


def test_a_unit_that_waits_for_a_reboot_is_not_started(calls: list[str]) -> None:
    contents = Contents(entries={}, missing=frozenset(), **NOTHING)
    assert bring_about([Unit(name="x.service", active=True, reboot="a new driver")], contents) == []
    assert calls == []


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine that starts an image for the first time; its folder with the job."""
    for module, name, path in (
        (lock, "BASE", "run"),
        (lock, "LOCK", "run/lock"),
        (lock, "KEPT", "kept"),
        (receipt, "RECEIPT", "receipt.json"),
        (receipt, "MARK", "applying.json"),
    ):
        monkeypatch.setattr(module, name, str(tmp_path / path))
    monkeypatch.setattr(receipt, "PROMISED", ())
    monkeypatch.setattr(finish, "machine_id", lambda: "a" * 32)
    fleet = judge([RawHost(name="image", values=SPEC)])
    job = cut.cut(frozen.freeze(fleet), size=1)[0]
    (tmp_path / "first-boot").mkdir()
    stored.save(make_local_job(job, fleet.pairs[0][1]), tmp_path / "first-boot" / "job.json")
    return tmp_path


def reading(monkeypatch: pytest.MonkeyPatch, **outputs: str) -> list[str]:
    """Have the machine answer this; return the list of its readings."""
    made: list[str] = []

    def read(pair: tuple[RawHost, HostSpec]) -> Facts:
        made.append(pair[0].name)
        return Facts({name: Output(text) for name, text in outputs.items()})

    monkeypatch.setattr(finish, "_read", read)
    return made


def test_the_wrong_hardware_is_refused_and_nothing_is_changed(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reading(monkeypatch, nvidia_functions="", fabric_bridges="", container="none\n")
    monkeypatch.setattr(finish, "ensure", lambda *_: pytest.fail("something was brought about"))
    report = finish.finish(host / "first-boot")
    assert report.exit_code == 3
    assert report.result.state == "blocked"
    assert report.result.message.startswith("the bus has no GPU")
    assert not (host / "receipt.json").exists()
    assert not (host / "run" / "lock").exists()
    assert any("fix: take fabric_manager out" in line for line in finish.describe(report))


def test_another_run_is_not_disturbed(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = process.describe("friday", "")
    assert lock.take(owner)["taken"]
    read = reading(monkeypatch)
    report = finish.finish(host / "first-boot")
    assert (report.exit_code, report.result.state, read) == (5, "locked", [])
    assert "friday" in report.result.message
    assert lock.read_owner_file() is not None


def test_what_cannot_be_proved_is_not_green_and_runs_again(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = reading(monkeypatch)
    assert finish.finish(host / "first-boot").exit_code != 0
    assert read
    written = json.loads((host / "receipt.json").read_text(encoding="utf-8"))
    assert set(written["capabilities"]) >= set(SPEC)
    before = len(read)
    assert finish.finish(host / "first-boot").exit_code != 0
    assert len(read) > before


def test_a_machine_that_is_finished_is_left_alone_and_its_clone_is_not(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = reading(monkeypatch)
    report = finish.finish(host / "first-boot")
    report.exit_code = 0
    write_atomic(host / "first-boot" / "done.json", msgspec.json.encode(report).decode())
    before = len(read)
    assert finish.finish(host / "first-boot") == report
    assert len(read) == before
    monkeypatch.setattr(finish, "machine_id", lambda: "b" * 32)
    assert finish.finish(host / "first-boot").machine == "b" * 32
    assert len(read) > before


def test_a_job_that_was_changed_is_refused(host: Path) -> None:
    job = host / "first-boot" / "job.json"
    job.write_text(job.read_text(encoding="utf-8").replace('"580"', '"570"'), encoding="utf-8")
    with pytest.raises(GpuprovError, match="was changed since gpuprov wrote it"):
        finish.finish(host / "first-boot")


def test_the_unit_starts_after_what_it_judges() -> None:
    ((_, spec),) = judge([RawHost(name="image", values=SPEC)]).pairs
    assert "nvidia-fabricmanager.service" in first_boot.units_of(spec)


def test_wheels_that_are_missing_are_named(tmp_path: Path) -> None:
    (tmp_path / "msgspec-0.19-py3-none-any.whl").touch()
    with pytest.raises(GpuprovError, match="no wheel of gpuprov, pyyaml") as raised:
        first_boot._find_wheels(tmp_path)
    assert "pip download" in raised.value.fix
    for name in ("gpuprov-0.0.1", "PyYAML-6", "markupsafe-3"):
        (tmp_path / f"{name}-py3-none-any.whl").touch()
    with pytest.raises(GpuprovError, match=r"has gpuprov 0\.0\.1; this is"):
        first_boot._find_wheels(tmp_path)


def answers(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    """Have the image's python3 answer this, and no other Python be there."""

    def run(_root: Path, script: str) -> str:
        return "\n".join(lines) if "command -v python3)" in script else ""

    monkeypatch.setattr(place, "run", run)


def test_the_python_of_an_image_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answers(monkeypatch, "/usr/bin/python3", '[[3, 11], "x86_64", "glibc 2.36"]')
    python = first_boot.find_python(tmp_path)
    assert (python.program, python.version, python.glibc) == ("/usr/bin/python3", (3, 11), (2, 36))


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (("/usr/bin/python3", '[[3, 9], "x86_64", "glibc 2.34"]'), "python3 is 3.9"),
        (("/usr/bin/python3; reboot", '[[3, 11], "x86_64", "glibc 2.36"]'), "it has none"),
        (("/usr/bin/python3", "Traceback"), "it has none"),
        ((), "it has none"),
    ],
)
def test_an_image_without_a_python_for_it_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lines: tuple[str, ...], found: str
) -> None:
    answers(monkeypatch, *lines)
    with pytest.raises(GpuprovError, match=found) as raised:
        first_boot.find_python(tmp_path)
    assert "python3.12 on EL 9" in raised.value.fix
