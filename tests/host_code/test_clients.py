"""Who holds GPUs, of real processes of this machine that hold a file in the place of a device; systemctl is a
stand-in."""

from __future__ import annotations

import getpass
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.here import program
from tests.host_code.modules import on_host, step

SERVICES = ["nvidia-dcgm.service", "nvidia-mps@*.service", "nvidia-fabricmanager.service"]
SYSTEMCTL = """
case $1 in
show) case $3 in
  Id) echo 'nvidia-mps@1.service'; echo; echo 'nvidia-mps@2.service' ;;
  *) cat "$STATE/needs/$6" 2>/dev/null || echo ;;
  esac ;;
is-active) [ -e "$STATE/active/$4" ] ;;
stop) [ ! -e "$STATE/stuck" ] || { echo 'job failed' >&2; exit 1; }; rm "$STATE/active/$3"
  echo "stop $3" >> "$STATE/log" ;;
start) [ ! -e "$STATE/broken/$3" ] || { echo 'not loaded' >&2; exit 5; }; echo "start $3" >> "$STATE/log" ;;
esac
"""
Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(on_host("clients"), "STOPPED", str(tmp_path / "stopped"))
    monkeypatch.setattr(on_host("clients"), "DEVICE", str(tmp_path / "nvidia"))
    monkeypatch.setattr(on_host("reasons"), "FOLDER", str(tmp_path / "reasons"))
    program(tmp_path, "systemctl", SYSTEMCTL)
    for name in ("active", "broken"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("STATE", str(tmp_path))
    (tmp_path / "nvidia0").touch()
    return tmp_path


@pytest.fixture
def ask(place: Path, capsys: pytest.CaptureFixture[str]) -> Ask:
    return lambda state, **more: step(capsys, "clients", state=state, services=SERVICES, **more)


def runs(place: Path, *units: str) -> None:
    for unit in units:
        (place / "active" / unit).touch()


def log(place: Path) -> list[str]:
    return (place / "log").read_text().splitlines() if (place / "log").exists() else []


@pytest.fixture
def user(place: Path) -> Any:
    """A process that holds a device, and one that does not."""
    code = f"import time; file = open({str(place / 'nvidia0')!r}); print(flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        assert child.stdout
        child.stdout.readline()
        yield child
        child.kill()


def test_a_users_process_is_named_and_nothing_is_stopped(place: Path, ask: Ask, user: subprocess.Popen[bytes]) -> None:
    runs(place, "nvidia-dcgm.service")
    (held,) = ask("listed")["clients"]
    assert f"(pid {user.pid}, {getpass.getuser()}" in held
    for state in ("free", "stopped"):
        refused = ask(state)
        assert refused["failed"]
        assert refused["msg"].startswith(
            f"1 process(es) hold a GPU: {held}. Fix: end or drain them, or give apply a drain"
        )
        assert "nothing was stopped" in refused["msg"]
    assert "The drain command ran and did not end them. Fix" in ask("free", drained=True)["msg"]
    assert "failed" not in ask("stopped", drained=True, check=True), "check mode drains nobody"
    assert ask("free", check=True)["failed"]
    assert log(place) == []


@pytest.mark.parametrize(
    ("path", "vendor", "held"),
    [
        ("/dev/vfio/12", "0x10de", True),
        ("/dev/vfio/noiommu-12", "0x10de", True),
        ("/dev/vfio/devices/vfio3", "0x10de", True),
        ("/dev/vfio/12", "0x15b3", False),  # a network function
        ("/dev/vfio/13", "0x10de", False),
        ("/dev/vfio/vfio", "0x10de", False),
    ],
)
@pytest.mark.parametrize("part", ["", "/c2b7-mdev"])
def test_before_a_reboot_a_virtual_machine_with_a_gpu_is_a_user(
    place: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch, path: str, vendor: str, held: bool, part: str
) -> None:
    clients, system = on_host("clients"), place / "sys"
    function = system / "devices/0000:41:00.0"
    (function / part.strip("/")).mkdir(parents=True)
    (function / "vendor").write_text(f"{vendor}\n")
    for link in ("kernel/iommu_groups/12/devices/one", "class/vfio-dev/vfio3/device"):
        (system / link).parent.mkdir(parents=True)
        (system / link).symlink_to(f"{function}{part}")
    monkeypatch.setattr(clients, "SYS", str(system))
    monkeypatch.setattr(clients, "_open_files", lambda pid: [path] if pid == str(os.getpid()) else [])
    assert len(ask("listed", guests=True)["clients"]) == held
    assert ask("free", guests=True).get("failed", False) == held
    assert ask("listed")["clients"] == [], "a change of the driver leaves it alone"


def test_a_service_that_may_be_stopped_is_no_user(
    place: Path, ask: Ask, user: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = on_host("clients")
    for unit, users in (("nvidia-mps@7.service", 0), ("gpuprov-persistence.service", 0), ("user.service", 1), ("", 1)):
        monkeypatch.setattr(clients, "find_unit", lambda pid, unit=unit: unit)
        assert len(ask("listed")["clients"]) == users, unit
    assert len(clients.list_holders(["", "nvidia-dcgm.service"])) == 1, (
        "an empty name is not a name of what has no unit"
    )


def test_what_runs_is_stopped_in_order_and_started_in_reverse(place: Path, ask: Ask) -> None:
    runs(
        place,
        "nvidia-fabricmanager.service",
        "nvidia-dcgm.service",
        "nvidia-mps@2.service",
        "gpuprov-persistence.service",
    )
    order = [
        "nvidia-dcgm.service",
        "nvidia-mps@2.service",
        "nvidia-fabricmanager.service",
        "gpuprov-persistence.service",
    ]
    planned = ask("stopped", check=True)
    assert (planned["changed"], planned["stopped"], log(place)) == (True, order, [])
    assert "nvidia-dcgm.service stopped" in planned["diff"]["after"]
    assert ask("stopped")["stopped"] == order
    assert log(place) == [f"stop {unit}" for unit in order]
    assert ask("stopped")["changed"] is False
    back = [
        "nvidia-fabricmanager.service",
        "nvidia-dcgm.service",
        "gpuprov-persistence.service",
        "nvidia-mps@2.service",
    ]
    assert ask("started", check=True)["started"] == back
    assert ask("started")["started"] == back
    assert log(place)[4:] == [f"start {unit}" for unit in back]
    assert ask("started")["changed"] is False


def test_what_systemd_stops_with_a_service_is_started_again_behind_it(place: Path, ask: Ask) -> None:
    """A site's own units: power limits with Requires=nvidia-persistenced.service, an exporter with
    Requires=nvidia-dcgm.service."""
    runs(place, "nvidia-dcgm.service", "dcgm_exporter.service", "multi-user.target", "textfile.timer")
    (place / "needs").mkdir()
    (place / "needs" / "nvidia-dcgm.service").write_text("dcgm_exporter.service multi-user.target\n\nidle.service\n")
    (place / "needs" / "dcgm_exporter.service").write_text("nvidia-dcgm.service textfile.timer\n")
    all_of_them = ["nvidia-dcgm.service", "dcgm_exporter.service", "textfile.timer"]
    assert ask("stopped", check=True)["stopped"] == all_of_them
    assert ask("stopped")["stopped"] == all_of_them
    assert log(place) == ["stop nvidia-dcgm.service"], "systemd stops the others"
    assert ask("started")["started"] == all_of_them


def test_what_another_role_starts_is_forgotten(place: Path, ask: Ask) -> None:
    """MIG's change stops the daemons of MPS, whose own role starts them for the devices that there are then."""
    runs(place, "nvidia-dcgm.service", "nvidia-mps@2.service")
    ask("stopped")
    assert "nvidia-mps@2.service" in ask("started", check=True, leave=["nvidia-mps@*.service"])["started"]
    assert ask("started", leave=["nvidia-mps@*.service"])["started"] == ["nvidia-dcgm.service"]
    assert list((place / "stopped").iterdir()) == []


def test_a_service_that_does_not_stop_is_said_and_stays_noted(place: Path, ask: Ask) -> None:
    runs(place, "nvidia-dcgm.service", "nvidia-fabricmanager.service")
    (place / "stuck").touch()
    assert "nvidia-dcgm.service does not stop: job failed. Fix" in ask("stopped")["msg"]
    assert [path.name for path in (place / "stopped").iterdir()] == ["nvidia-dcgm.service"]


def test_every_one_is_tried_and_what_does_not_start_stays_noted(place: Path, ask: Ask) -> None:
    runs(place, "nvidia-dcgm.service", "nvidia-fabricmanager.service")
    ask("stopped")
    (place / "broken" / "nvidia-fabricmanager.service").touch()
    refused = ask("started")
    assert refused["msg"].startswith(
        "nvidia-fabricmanager.service, stopped for the change of the driver, does not start again: not loaded. Fix: "
        "systemctl"
    )
    assert refused["started"] == ["nvidia-dcgm.service"]
    tolerated = ask("started", tolerant=True)
    assert (tolerated.get("failed"), tolerated["not_started"]) == (None, ["nvidia-fabricmanager.service"])
    (place / "broken" / "nvidia-fabricmanager.service").unlink()
    assert ask("started")["started"] == ["nvidia-fabricmanager.service"]


def test_what_waits_for_the_reboot_is_left_to_it(place: Path, ask: Ask) -> None:
    runs(place, "nvidia-dcgm.service")
    ask("stopped")
    (place / "broken" / "nvidia-dcgm.service").touch()
    (place / "reasons").mkdir()
    (place / "reasons" / "nvidia_driver").write_text("the old one is loaded\n")
    found = ask("started")
    assert (found["started"], found["not_started"]) == ([], [])
    assert not list((place / "stopped").iterdir())


def test_where_processes_cannot_be_seen_nobody_is_no_answer(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_path: str) -> str:
        raise OSError(2, "No such file or directory")

    monkeypatch.setattr(on_host("clients").os, "readlink", broken)
    for state in ("listed", "free", "stopped"):
        assert "the processes that hold a GPU cannot be listed" in ask(state)["msg"]
