"""Links of device files and the CDI specification, on files of this machine; nvidia-ctk and nvidia-smi are
stand-ins."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.here import program
from tests.host_code.modules import on_host, step

CTK = """echo "$*" >> "$STATE/log"; echo "${NVIDIA_CTK_CDI_GENERATE_DEVICE_NAME_STRATEGIES-}" > "$STATE/names"
case "$*" in
*"cdi generate"*) for word; do case $word in --output=*) cat "$STATE/wanted" > "${word#--output=}" ||
  exit 1 ;; esac; done ;;
*create-dev-char-symlinks*) [ ! -e "$STATE/stubborn" ] || { echo 'no such device' >&2; exit 1; }
  touch "$STATE/char/1:3" ;;
esac
"""
Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host with one device file (the null device, 1:3) that has its link, and GPUs."""
    cdi = on_host("cdi")
    for name, value in {
        "DIRECTORIES": (f"{tmp_path}/run/cdi", f"{tmp_path}/etc/cdi"),
        "DEVICES": f"{tmp_path}/nvidia*",
        "BY_NUMBER": f"{tmp_path}/char",
        "MAKE_UVM": f"touch {tmp_path}/uvm",
        "SETTINGS": f"{tmp_path}/refresh.env",
    }.items():
        monkeypatch.setattr(cdi, name, value)
    monkeypatch.setitem(on_host("steps.cdi").OPTIONS["directory"], "choices", list(cdi.DIRECTORIES))
    (tmp_path / "char").mkdir()
    (tmp_path / "char" / "1:3").touch()
    (tmp_path / "nvidia0").symlink_to("/dev/null")
    (tmp_path / "nvidia-caps").mkdir()
    (tmp_path / "wanted").write_text("devices: [a]\n")
    program(tmp_path, "nvidia-ctk", CTK)
    program(tmp_path, "nvidia-smi", 'exit "$(cat "$STATE/status")"')
    (tmp_path / "status").write_text("0")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("STATE", str(tmp_path))
    return tmp_path


@pytest.fixture
def ask(place: Path, capsys: pytest.CaptureFixture[str]) -> Ask:
    return lambda **more: step(capsys, "cdi", directory=f"{place}/run/cdi", **more)


def test_the_specification_is_made_once(place: Path, ask: Ask) -> None:
    file = place / "run" / "cdi" / "nvidia.yaml"
    would = ask(check=True)
    assert (would["changed"], file.exists(), (place / "uvm").exists()) == (True, False, False)
    assert would["changes"] == [f"{file}: made anew"]
    assert ask()["changed"]
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("devices: [a]\n", 0o644)
    assert (place / "uvm").exists(), "before the specification, which has the device files that are there"
    assert not ask()["changed"]
    assert os.listdir(file.parent) == ["nvidia.yaml"]
    (place / "wanted").write_text("devices: [a, b]\n")
    assert ask()["changed"]
    assert "b" in file.read_text()


def test_it_is_made_as_the_toolkits_own_unit_makes_it(place: Path, ask: Ask) -> None:
    ask()
    assert (place / "names").read_text() == "\n"
    text = '# NVIDIA_CTK_X=1\nPATH=/nowhere\nNVIDIA_CTK_CDI_GENERATE_DEVICE_NAME_STRATEGIES="uuid"\n'
    (place / "refresh.env").write_text(text)
    ask()
    assert (place / "names").read_text() == "uuid\n"


def test_the_other_directorys_goes(place: Path, ask: Ask) -> None:
    other = place / "etc" / "cdi" / "nvidia.yaml"
    other.parent.mkdir(parents=True)
    other.touch()
    assert f"{other}: removed, which engines would take too" in ask(check=True)["changes"]
    assert other.exists()
    ask()
    assert not other.exists()


@pytest.mark.parametrize(("status", "made"), [("0", True), ("14", True), ("9", False)])
def test_a_host_whose_gpus_do_not_answer_keeps_what_it_has(place: Path, ask: Ask, status: str, made: bool) -> None:
    """14: the infoROM of one is corrupted, and all are listed."""
    (place / "status").write_text(status)
    assert ask()["changed"] == made
    assert (place / "run" / "cdi" / "nvidia.yaml").exists() == made


def test_a_host_without_programs_is_no_error_in_check_mode(place: Path, ask: Ask) -> None:
    (place / "nvidia-ctk").unlink()
    assert ask(check=True)["changed"], "apply installs it, and makes the specification then"
    told = ask()
    assert "nvidia-ctk cdi generate failed: nvidia-ctk is not there. Fix: repair the driver" in told["msg"]


def test_a_specification_that_cannot_be_made_is_told_and_the_old_one_stays(place: Path, ask: Ask) -> None:
    ask()
    (place / "wanted").unlink()
    assert "nvidia-ctk cdi generate failed: cat: " in ask()["msg"]
    assert (place / "run" / "cdi" / "nvidia.yaml").read_text() == "devices: [a]\n"


def test_device_files_are_linked_where_a_link_is_missing(place: Path, ask: Ask) -> None:
    ask()
    (place / "char" / "1:3").unlink()
    assert ask(check=True)["changes"] == [f"{place}/char: linked {place}/nvidia0"]
    assert "symlinks" not in (place / "log").read_text()
    assert ask()["changed"]
    assert not ask()["changed"]
    assert (place / "log").read_text().count("create-dev-char-symlinks") == 1
    (place / "char" / "1:3").unlink()
    (place / "stubborn").touch()
    assert "create-dev-char-symlinks failed: no such device" in ask()["msg"]
