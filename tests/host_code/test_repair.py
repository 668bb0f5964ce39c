"""The program of `gpuprov repair` on a host; systemctl, nvidia-smi and shutdown are stand-ins."""

from __future__ import annotations

import io
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.host.checkpoints import REPAIRS
from gpuprov.host_code import clients, lock, process, reasons, repair, repairs
from gpuprov.host_code.fence import Owner
from gpuprov.plan.host_code import program as carried
from gpuprov.repair.hosts import BOOT_UNITS, LISTINGS
from tests.here import program
from tests.host_code.test_clients import SYSTEMCTL, user  # noqa: F401 (a fixture)

SERVICES = ["nvidia-dcgm.service", "nvidia-persistenced.service", "nvidia-fabricmanager.service"]
OWNER: Owner = {
    "controller": "elsewhere", "pid": 77, "pid_start": "1", "user": "kim", "host": "ops1", "since": "now", "run": "r1",
    "lease": 300,
}  # fmt: skip
MORE = """restart) echo "restart $3" >> "$STATE/log"
  case $3 in *slurm*) cat "$STATE/devices" > "$STATE/gres.conf" ;; esac ;;
try-restart) echo "try-restart $3" >> "$STATE/log" ;;
is-enabled) [ -e "$STATE/enabled/$4" ] ;;
"""
Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(clients, "STOPPED", str(tmp_path / "stopped"))
    monkeypatch.setattr(clients, "DEVICE", str(tmp_path / "nvidia"))
    monkeypatch.setattr(reasons, "FOLDER", str(tmp_path / "reasons"))
    monkeypatch.setattr(repairs, "RECORD", str(tmp_path / "repairs.jsonl"))
    for name, value in (("BASE", "run"), ("LOCK", "run/lock"), ("KEPT", "kept")):
        monkeypatch.setattr(lock, name, str(tmp_path / value))
    monkeypatch.setattr(repair, "REBOOT", 'exec shutdown -r 0 "$1"')
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "sync", lambda: None)
    program(tmp_path, "systemctl", SYSTEMCTL.replace("start) ", f"{MORE}start) "))
    smi = (
        'echo "smi $*" >> "$STATE/log"; [ ! -e "$STATE/refuses" ] || { echo "GPU is in use by\nanother client"; '
        "exit 255; }"
    )
    program(tmp_path, "nvidia-smi", smi)
    program(tmp_path, "shutdown", 'printf "%s|" "$@" > "$STATE/booted"')
    for name in ("active", "broken"):
        (tmp_path / name).mkdir()
    for unit in SERVICES:
        (tmp_path / "active" / unit).touch()
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("STATE", str(tmp_path))
    (tmp_path / "nvidia0").touch()
    return tmp_path


@pytest.fixture
def ask(place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ask:
    def answer_one(action: str, **more: Any) -> dict[str, Any]:
        request = {"action": action, "owner": OWNER, "known": SERVICES, "services": SERVICES[:2],
                   "gpus": ["0000:19:00.0"],
                   "ids": ["GPU-1"], "checks": ["health.recovery"], "message": "why", "boot_units": BOOT_UNITS,
                   "listings": listings(place), **more}  # fmt: skip
        monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(request)))
        repair.main()
        answer: dict[str, Any] = json.loads(capsys.readouterr().out)
        return answer

    return answer_one


def listings(place: Path) -> list[repair.Listing]:
    return [{**entry, "file": entry["file"] and str(place / "gres.conf")} for entry in LISTINGS]


def log(place: Path) -> list[str]:
    return (place / "log").read_text().splitlines() if (place / "log").exists() else []


def record(place: Path) -> list[tuple[str, str, tuple[str, ...]]]:
    lines = (place / "repairs.jsonl").read_text() if (place / "repairs.jsonl").exists() else ""
    return [(act.act, act.problem, act.gpus) for act in REPAIRS.parse(Output(lines))]


def test_looking_changes_nothing(place: Path, ask: Ask) -> None:
    answer = ask("look")
    assert (answer["services"], answer["holders"], answer["here"]) == (SERVICES[:2], [], False)
    assert not (place / "run").exists()
    assert log(place) == []


def test_a_reset_with_services_stopped_and_started_and_gpus_set_up_between(place: Path, ask: Ask) -> None:
    (place / "active" / "gpuprov-mig.service").touch()
    assert ask("take")["boot"] == lock.identify_boot()
    assert ask("reset") == {"problem": "", "holders": [], "failed": {}, "unrecorded": ""}
    dcgm, persistenced, _ = SERVICES
    assert log(place) == [
        f"stop {dcgm}", f"stop {persistenced}", "smi --gpu-reset -i GPU-1", f"start {persistenced}",
        "restart gpuprov-mig.service", f"start {dcgm}",
    ]  # fmt: skip
    assert record(place) == [("reset", "", ("0000:19:00.0",))]
    assert ask("release")["problem"] == ""
    assert not (place / "run" / "lock").exists()


def test_mig_devices_made_anew_are_listed_for_containers_and_jobs(place: Path, ask: Ask) -> None:
    """slurmd reads gres.conf at its start alone, and is left alone where the file is the same."""
    (place / "enabled").mkdir()
    for unit in ("nvidia-cdi-refresh.service", "gpuprov-slurm.service"):
        (place / "enabled" / unit).touch()
    ask("take")
    for devices, more in (("cap12", ["try-restart slurmd.service"]), ("cap12", [])):
        (place / "devices").write_text(devices)
        (place / "log").unlink(missing_ok=True)
        assert ask("reset", services=[])["failed"] == {}
        assert log(place) == [
            "smi --gpu-reset -i GPU-1", "restart nvidia-cdi-refresh.service", "restart gpuprov-slurm.service", *more
        ]  # fmt: skip


def test_all_gpus_at_once(place: Path, ask: Ask) -> None:
    ask("take")
    ask("reset", services=SERVICES, ids=[], gpus=[])
    assert "stop nvidia-fabricmanager.service" in log(place)
    assert "smi --gpu-reset" in log(place)


def test_a_refused_reset_starts_the_services_again(place: Path, ask: Ask) -> None:
    (place / "refuses").touch()
    (place / "active" / "gpuprov-mig.service").touch()
    (place / "broken" / SERVICES[0]).touch()
    ask("take")
    answer = ask("reset")
    assert answer["problem"] == "nvidia-smi --gpu-reset: GPU is in use by another client"
    assert answer["failed"] == {SERVICES[0]: "not loaded"}
    assert "restart gpuprov-mig.service" not in log(place), "its GPUs have what they had"
    assert record(place)[0][1] == answer["problem"]


def test_no_nvidia_smi(ask: Ask, monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    (place / "nvidia-smi").unlink()
    ask("take")
    monkeypatch.setenv("PATH", str(place) + ":/bin")
    assert "No such file" in ask("reset")["problem"]


def test_a_service_that_does_not_stop(place: Path, ask: Ask) -> None:
    (place / "stuck").touch()
    ask("take")
    assert ask("reset")["problem"] == f"{SERVICES[0]} does not stop: job failed"
    assert not any(line.startswith("smi") for line in log(place))


def test_an_error_midway_leaves_no_service_stopped(place: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    ask("take")

    def fail(*_: object, **__: object) -> list[str]:
        raise OSError("/proc is not there")

    monkeypatch.setattr(clients, "list_holders", fail)
    assert ask("reset")["problem"] == "/proc is not there"
    assert [line for line in log(place) if line.startswith("start")] == [f"start {SERVICES[1]}", f"start {SERVICES[0]}"]


def test_while_a_process_holds_a_gpu_nothing_is_done(place: Path, ask: Ask, user: Any) -> None:  # noqa: F811
    (holder,) = ask("look")["holders"]
    assert f"pid {user.pid}" in holder
    assert ask("take")["holders"] == [holder]
    assert not (place / "run" / "lock").exists(), "the lock is given back"
    assert ask("reset")["lost"]
    lock.take(OWNER)
    assert ask("reset")["holders"] == [holder]
    assert ask("reboot")["holders"] == [holder]
    assert not (place / "booted").exists()
    assert not any(line.startswith("smi") for line in log(place))


def test_a_reboot_is_announced_and_recorded(place: Path, ask: Ask) -> None:
    ask("take")
    assert ask("reboot", message="gpuprov repair: health.xid; $(reboot)") == {"problem": "", "unrecorded": ""}
    until = time.monotonic() + 10
    while not (place / "booted").exists() and time.monotonic() < until:
        time.sleep(0.02)
    time.sleep(0.1)
    assert (place / "booted").read_text() == "-r|0|gpuprov repair: health.xid; $(reboot)|"
    assert record(place) == [("reboot", "", ("0000:19:00.0",))]


def test_the_machine_that_gpuprov_runs_on_is_not_rebooted(place: Path, ask: Ask) -> None:
    here = {**OWNER, "controller": process.identify_machine()}
    ask("take", owner=here)
    assert ask("look", owner=here)["here"]
    assert ask("reboot", owner=here)["problem"] == "it is the machine that gpuprov runs on"


def test_another_run_s_host_is_left_alone(place: Path, ask: Ask) -> None:
    other = {**OWNER, "run": "r2"}
    assert ask("take", owner=other)["boot"]
    assert ask("take")["locked"]["id"] == "r2"
    for action in ("reset", "reboot", "note", "seen"):
        assert ask(action, act="repaired")["lost"], action
    assert (log(place), record(place)) == ([], [])


def test_without_root(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "needs root" in ask("look")["problem"]


def test_the_record_keeps_the_newest(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repairs, "MOST", 3)
    for number in range(5):
        repairs.note(f"r{number}", "reset", [], [])
    assert [act.run for act in REPAIRS.parse(Output((place / "repairs.jsonl").read_text()))] == ["r2", "r3", "r4"]


def test_a_host_gets_the_whole_program() -> None:
    compile(carried(repair.__name__), "repair", "exec")


def test_a_reset_that_somebody_else_has_done_is_recorded_and_nothing_else_is_done(place: Path, ask: Ask) -> None:
    at = time.time() - 600
    assert ask("mark", at=at) == {}
    (act,) = REPAIRS.parse(Output((place / "repairs.jsonl").read_text()))
    assert (act.act, act.gpus, act.checks, act.at) == ("reset", ("0000:19:00.0",), ("health.recovery",), round(at, 3))
    assert log(place) == []
    assert ask("take")["boot"], "the lock is free again"


def test_a_reset_in_the_future_or_of_a_locked_host_is_not_recorded(place: Path, ask: Ask) -> None:
    assert "in the future" in ask("mark", at=time.time() + 60)["problem"]
    assert ask("take", owner={**OWNER, "run": "r2"})["boot"]
    assert ask("mark", at=time.time() - 60)["locked"]["id"] == "r2"
    assert record(place) == []
