"""The driver in the running kernel: out, in, and back after a failure, where stand-ins answer for the kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import here
from tests.host_code.modules import on_host, step

SERVICES = "gdrdrv.service gdrcopy.service nv_peer_mem.service gpuprov-gpudirect.service"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Whose modules are folders of $STATE/modules; what is in `busy` does not leave."""
    monkeypatch.setattr(on_host("driver.loaded"), "MODULES", str(tmp_path / "modules"))
    monkeypatch.setattr(on_host("driver.loaded"), "NOTE", str(tmp_path / "run/unloaded"))
    monkeypatch.setattr(on_host("reasons"), "FOLDER", str(tmp_path / "reasons"))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("STATE", str(tmp_path))
    (tmp_path / "modules").mkdir()
    here.program(
        tmp_path, "rmmod", '! grep -qsx "$1" $STATE/busy && rmdir $STATE/modules/$1 && echo "rmmod $1" >> $STATE/log\n'
    )
    here.program(tmp_path, "modprobe", 'echo "modprobe $*" >> $STATE/log\n'
                 '[ ! -e $STATE/bad ] || { echo "no such device" >&2; exit 1; }\n'
                 '[ ! -e "$STATE/no/$1" ] || { cat "$STATE/no/$1" >&2; exit 1; }\n'
                 'for m in "$@"; do [ "$m" = -a ] || mkdir -p $STATE/modules/$m; done\n')  # fmt: skip
    here.program(tmp_path, "systemctl", 'echo "systemctl $*" >> $STATE/log; exit 1\n')
    return tmp_path


def log(host: Path) -> list[str]:
    file = host / "log"
    lines = file.read_text().splitlines() if file.exists() else []
    file.unlink(missing_ok=True)
    return lines


def load(host: Path, *names: str) -> None:
    for name in names:
        (host / "modules" / name).mkdir()


@pytest.fixture
def ask(host: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    return lambda state, check=False, **more: step(capsys, "driver_loaded", check=check, state=state, **more)


def test_a_driver_is_taken_out_from_the_top_and_what_stood_on_it_comes_back_with_the_new_one(
    host: Path, ask: Any
) -> None:
    load(host, "nvidia", "nvidia_uvm", "nvidia_peermem")
    planned = ask("out", check=True)
    assert (planned["modules"], log(host)) == (["nvidia_peermem", "nvidia_uvm", "nvidia"], [])
    out = ask("out")
    assert (out["changed"], out["modules"]) == (True, ["nvidia_peermem", "nvidia_uvm", "nvidia"])
    assert log(host) == ["rmmod nvidia_peermem", "rmmod nvidia_uvm", "rmmod nvidia"]
    assert not ask("out")["changed"]
    assert ask("loaded", check=True)["modules"] == ["nvidia", "nvidia_uvm", "nvidia_peermem"]
    loaded = ask("loaded")
    assert (loaded["changed"], loaded["modules"]) == (True, ["nvidia", "nvidia_uvm", "nvidia_peermem"])
    restarted = f"systemctl try-restart {SERVICES}"
    assert log(host) == ["modprobe nvidia", restarted, "modprobe nvidia_uvm", "modprobe nvidia_peermem"]
    assert loaded.get("warnings", []) == []
    assert not (host / "run/unloaded").exists()
    assert not ask("loaded")["changed"]
    assert log(host) == []


def test_after_a_failure_the_old_driver_is_loaded_again(host: Path, ask: Any) -> None:
    load(host, "nvidia", "nvidia_uvm", "nvidia_fs", "nvidia_vgpu_vfio")
    ask("out")
    log(host)
    assert ask("back")["modules"] == ["nvidia", "nvidia_uvm", "nvidia_vgpu_vfio", "nvidia_fs"]
    assert log(host) == ["modprobe -a nvidia nvidia_uvm nvidia_vgpu_vfio nvidia_fs"]
    assert not ask("back")["changed"]
    assert log(host) == []


def test_a_later_run_goes_on_where_one_was_killed(host: Path, ask: Any) -> None:
    """It knows what stood on the driver, although it unloaded nothing itself."""
    load(host, "nvidia", "gdrdrv")
    ask("out")
    log(host)
    load(host, "nvidia")
    assert ask("loaded")["modules"] == ["gdrdrv"]
    assert log(host) == [f"systemctl try-restart {SERVICES}", "modprobe gdrdrv"]


def test_what_a_service_loads_is_left_to_it(host: Path, ask: Any) -> None:
    load(host, "nvidia", "gdrdrv")
    ask("out")
    log(host)
    here.program(host, "systemctl", 'echo "systemctl $*" >> $STATE/log; mkdir $STATE/modules/gdrdrv\n')
    assert ask("loaded")["modules"] == ["nvidia", "gdrdrv"]
    assert log(host) == ["modprobe nvidia", f"systemctl try-restart {SERVICES}"]


def test_what_does_not_load_on_the_new_driver_is_told_and_what_is_gone_is_not(host: Path, ask: Any) -> None:
    load(host, "nvidia", "nvidia_peermem", "nv_peer_mem")
    ask("out")
    (host / "no").mkdir()
    (host / "no/nvidia_peermem").write_text("modprobe: ERROR: could not insert 'nvidia_peermem': Invalid argument\n")
    (host / "no/nv_peer_mem").write_text(
        "modprobe: FATAL: Module nv_peer_mem not found in directory /lib/modules/6.8.0\n"
    )
    loaded = ask("loaded")
    assert loaded["modules"] == ["nvidia"]
    assert loaded["warnings"] == [
        "what was loaded on the old driver does not load on the new one, and is missing: nvidia_peermem: modprobe: "
        "ERROR: could not insert 'nvidia_peermem': Invalid argument. Fix: build or install it for this driver, then "
        "modprobe it"
    ]


def test_nothing_is_loaded_on_a_driver_that_a_reboot_replaces(host: Path, ask: Any) -> None:
    load(host, "nvidia", "nvidia_uvm", "nvidia_peermem")
    (host / "busy").write_text("nvidia\n")
    ask("out")
    log(host)
    (host / "reasons").mkdir()
    (host / "reasons" / "nvidia_driver").write_text("x\n")
    assert not ask("loaded")["changed"]
    assert log(host) == []


def test_what_is_in_use_stays_and_is_not_loaded_again(host: Path, ask: Any) -> None:
    load(host, "nvidia", "nvidia_uvm")
    (host / "busy").write_text("nvidia\n")
    assert ask("out")["modules"] == ["nvidia_uvm"]
    assert (host / "run/unloaded").read_text() == "nvidia_uvm\n"


def test_a_host_that_waits_for_a_reboot_or_has_no_gpu_loads_none(host: Path, ask: Any) -> None:
    assert not ask("loaded", wanted=False)["changed"]
    (host / "reasons").mkdir()
    (host / "reasons" / "nouveau").write_text("x\n")
    assert not ask("loaded")["changed"]
    assert log(host) == []


def test_a_driver_that_does_not_load_is_told(host: Path, ask: Any) -> None:
    (host / "bad").touch()
    assert ask("loaded")["msg"] == (
        "the NVIDIA module does not load: no such device. Fix: dmesg | grep -E 'NVRM|nvidia' on the host says why; "
        "gpuprov explain finds most of its messages"
    )
