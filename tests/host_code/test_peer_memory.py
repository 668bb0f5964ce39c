"""A peer module of the running kernel, where stand-ins answer for the host."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import pytest

from tests import here
from tests.host_code.modules import on_host, step

NAME, OTHER, UNIT = "nvidia_peermem", "nv_peer_mem", "gpuprov-gpudirect.service"
CAUSES = [{"text": "Unknown symbol", "cause": "it was built for another kernel", "way": "build it again"}]


class Ask(Protocol):
    def __call__(self, *, check: bool = False) -> dict[str, Any]: ...


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Whose unit, when it is restarted, runs `load`."""
    monkeypatch.setattr(on_host("peer_memory"), "MODULES", str(tmp_path / "modules"))
    monkeypatch.setattr(on_host("reasons"), "FOLDER", str(tmp_path / "reasons"))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("STATE", str(tmp_path))
    systemctl = (
        "case $1 in is-active) [ -e $STATE/active ] ;; restart) echo restart >> $STATE/log; . $STATE/load ;; esac\n"
    )
    here.program(tmp_path, "systemctl", systemctl)
    here.program(
        tmp_path,
        "rmmod",
        'echo rmmod $1 >> $STATE/log; [ ! -e $STATE/busy ] || { echo "$1 is in use" >&2; exit 1; }; rm -r '
        "$STATE/modules/$1\n",
    )
    here.program(
        tmp_path,
        "journalctl",
        'case "$*" in *-k*) cat $STATE/kernel 2>/dev/null; true ;;\n'
        '*-u*) echo Starting; echo "modprobe: ERROR: could not insert" ;; esac\n',
    )
    loads(tmp_path)
    return tmp_path


def loads(place: Path, value: str = "1") -> None:
    (place / "load").write_text(f"mkdir -p $STATE/modules/{NAME}/parameters; "
                                f"p=$STATE/modules/{NAME}/parameters/peerdirect_support\n"
                                f"[ -e $p ] || echo {value} > $p\n")  # fmt: skip


def loaded(place: Path, name: str = NAME, value: str = "1") -> None:
    folder = place / "modules" / name / "parameters"
    folder.mkdir(parents=True)
    if name == NAME:
        (folder / "peerdirect_support").write_text(f"{value}\n")


def log(place: Path) -> list[str]:
    file = place / "log"
    return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def ask(host: Path, capsys: pytest.CaptureFixture[str]) -> Ask:
    asked: dict[str, Any] = {
        "name": NAME,
        "other": OTHER,
        "unit": UNIT,
        "parameters": {"peerdirect_support": 1, "x": 0},
        "causes": CAUSES,
    }
    return lambda *, check=False: step(capsys, "peer_memory", check=check, **asked)


def test_it_is_loaded_once_and_in_check_mode_said(host: Path, ask: Ask) -> None:
    planned = ask(check=True)
    assert (planned["changed"], planned["msg"]) == (True, "would load nvidia_peermem (nvidia_peermem is not loaded)")
    assert log(host) == []
    assert ask()["differs"] == ["nvidia_peermem is not loaded"]
    assert log(host) == ["restart"]
    assert not ask()["changed"]
    assert log(host) == ["restart"], "a second run changes nothing"


def test_a_host_that_waits_for_a_reboot_is_left_alone(host: Path, ask: Ask) -> None:
    (host / "reasons").mkdir()
    (host / "reasons" / "nouveau").write_text("x\n")
    assert not ask()["changed"]


def test_the_other_module_leaves_first(host: Path, ask: Ask) -> None:
    loaded(host, OTHER)
    loaded(host)
    (host / "active").touch()
    assert ask()["differs"] == ["nv_peer_mem is loaded"]
    assert log(host) == ["rmmod nv_peer_mem", "restart"]


def test_another_module_in_use_is_refused(host: Path, ask: Ask) -> None:
    loaded(host, OTHER)
    (host / "busy").touch()
    assert ask()["msg"] == (
        "nv_peer_mem does not leave: nv_peer_mem is in use; it and nvidia_peermem register the same client. "
        "Fix: end what uses RDMA on the host, or reboot it; then apply again"
    )
    assert "restart" not in log(host)


def test_a_module_that_others_loaded_is_loaded_anew_by_a_unit_that_has_not_run(host: Path, ask: Ask) -> None:
    """Only ExecStop of a unit that ran takes the module away, and only a module that is loaded anew takes
    parameters."""
    loaded(host, value="0")
    assert ask()["differs"] == ["peerdirect_support is 0"]
    assert log(host) == ["rmmod nvidia_peermem", "restart"]


def test_a_module_that_stays_as_it_was_is_refused(host: Path, ask: Ask) -> None:
    loaded(host, value="0")
    (host / "busy").touch()
    assert "nvidia_peermem stays as it was loaded (peerdirect_support is 0), for it is in use" in ask()["msg"]


@pytest.mark.parametrize(
    ("kernel", "told"),
    [
        ("eth0: up\nnvidia_peermem: Unknown symbol x\n",
         "insert | nvidia_peermem: Unknown symbol x. That is: it was built for"),
        ("nvidia_peermem: strange\n", "insert | nvidia_peermem: strange. Fix: gpuprov verify says what it was built"),
        ("", "could not insert. Fix: gpuprov verify"),
    ],
)  # fmt: skip
def test_a_module_that_does_not_load_is_told_with_its_cause(host: Path, ask: Ask, kernel: str, told: str) -> None:
    (host / "load").write_text("exit 1\n")
    forged = "a[7]: segfault at 0 ip 0 sp 0 error 4 in nvidia_peermem: Unknown symbol forged[5+1]\n"
    stamped = [f"1763800001.000000 gpu1 kernel: {line}" for line in (kernel + forged).splitlines(keepends=True)]
    (host / "kernel").write_text("".join(stamped))
    said = ask()["msg"]
    assert said.startswith("nvidia_peermem does not load: modprobe: ERROR: ")
    assert told in said
    assert "Starting" not in said
    assert "eth0" not in said
    assert "forged" not in said
