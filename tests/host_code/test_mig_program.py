"""The module that has the MIG program carry out what is wanted: what it keeps for the next boot, and what it does
not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.host_code.modules import on_host, step

ASKED: dict[str, Any] = {"wanted": {"version": 1, "mode": "disabled"}, "steps": ["GPU 0: disable MIG mode"]}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host whose program answers what `answer` has, and notes what it was told."""
    program = on_host("mig_program")
    monkeypatch.setattr(program, "ABOVE", str(tmp_path))
    monkeypatch.setattr(program, "WANTED", str(tmp_path / "mig.json"))
    (tmp_path / "mig").mkdir()
    (tmp_path / "mig/__init__.py").touch()
    text = f"import sys\nopen({str(tmp_path / 'told')!r}, 'w').write(sys.stdin.read() + ' '.join(sys.argv[1:]))\n"
    (tmp_path / "mig/__main__.py").write_text(text + f"print(open({str(tmp_path / 'answer')!r}).read())\n")
    return tmp_path


def answers(place: Path, **answer: Any) -> None:
    (place / "answer").write_text(json.dumps({"changed": True, "steps": ["done"], "problem": "", **answer}))


def kept(place: Path) -> Any:
    file = place / "mig.json"
    return json.loads(file.read_text()) if file.exists() else None


def test_what_came_about_is_kept(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers(place)
    done = step(capsys, "mig", **ASKED, services=["a.service"], may_reset=True)
    assert done["changed"] is True
    assert kept(place) == ASKED["wanted"]
    told = (place / "told").read_text()
    assert json.loads(told[: told.index("}") + 1]) == ASKED["wanted"]
    assert told.endswith("apply --wanted=/dev/stdin --wait=30 --services=a.service --may-reset")
    again = step(capsys, "mig", wanted=ASKED["wanted"])
    assert (again["changed"], again["later"]) == (False, "")


def test_nothing_of_the_current_folder_is_run(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(place)
    (place / "public").mkdir()
    for name in ("mig", "json"):
        (place / f"public/{name}.py").write_text(f"open({str(place / 'ran')!r}, 'w')\n")
    monkeypatch.chdir(place / "public")
    assert step(capsys, "mig", **ASKED)["changed"] is True
    assert not (place / "ran").exists()


@pytest.mark.parametrize(("reboot", "expected"), [(False, None), (True, ASKED["wanted"])])
def test_what_was_refused_is_not_what_the_next_boot_makes(
    place: Path, capsys: pytest.CaptureFixture[str], reboot: bool, expected: Any
) -> None:
    answers(place, problem="in use: train (pid 7)", reboot=reboot)
    done = step(capsys, "mig", **ASKED)
    assert done["failed"]
    assert done["msg"] == "in use: train (pid 7)"
    assert kept(place) == expected


def test_a_problem_that_is_known_stops_before_the_program(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = step(capsys, "mig", **ASKED, problem="3 x 3g.40gb do not fit")
    assert (done["failed"], done["msg"]) == (True, "3 x 3g.40gb do not fit")
    assert not (place / "told").exists()
    assert kept(place) is None


def test_a_program_without_an_answer(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "mig/__main__.py").write_text("raise SystemExit('no pynvml')\n")
    done = step(capsys, "mig", **ASKED)
    assert done["msg"] == "the MIG program ended without an answer: no pynvml"
    assert kept(place) is None


def test_check_mode_says_the_steps_and_writes_nothing(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = step(capsys, "mig", check=True, **ASKED, watching=["nvtop (pid 9)"])
    assert (done["changed"], done["msg"]) == (True, "GPU 0: disable MIG mode")
    assert done["warnings"] == ["restart afterwards what has a GPU open whose MIG devices change: nvtop (pid 9)"]
    assert kept(place) is None


@pytest.mark.parametrize(("check", "waits"), [(False, True), (True, True), (True, False)])
def test_a_driver_that_is_to_come(place: Path, capsys: pytest.CaptureFixture[str], check: bool, waits: bool) -> None:
    done = step(capsys, "mig", check=check, wanted=ASKED["wanted"], later="no driver", waits=waits)
    by = "gpuprov-mig.service, when it is started with the driver" if waits else "the apply that brings the driver"
    assert (done["changed"], done["later"], done["msg"]) == (True, "no driver", f"no driver. MIG is set up by {by}")
    assert kept(place) == (None if check else ASKED["wanted"])
    assert not (place / "told").exists()


def test_a_driver_that_should_be_there_is_waited_for(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers(place, problem="NVML does not answer", changed=False)
    done = step(capsys, "mig", wanted=ASKED["wanted"], later="NVML does not answer")
    assert done["failed"]
    assert (place / "told").exists()
