"""A step that failed: what was begun for it is taken back, and its reason is what is said, whatever comes of the
rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuprov.host_code.giving_up import describe_failure, find_reason
from tests import here
from tests.rows import run_each

ITEMS = [{"msg": "done"}, {"failed": True, "msg": "no room", "stderr": "ENOSPC"}, {"failed": True, "msg": "later"}]


@run_each(
    ("failure", "said"),
    [
        ({"msg": " busy \n"}, "busy"),
        ({"msg": "non-zero return code", "stderr": "no module"}, "non-zero return code: no module"),
        ({"msg": "the same", "stderr": "the same"}, "the same"),
        ({"msg": "One or more items failed", "results": ITEMS}, "no room: ENOSPC"),
        ({"msg": "One or more items failed", "results": [{"msg": "x"}]}, "One or more items failed"),
        ({}, "failed without a message"),
    ],
)
def test_the_reason_is_that_of_the_first_that_failed(failure: dict[str, Any], said: str) -> None:
    assert find_reason(failure) == said


def test_what_could_not_be_taken_back_is_added() -> None:
    assert describe_failure({"msg": "busy"}, [], []) == "busy"
    assert describe_failure({"msg": "busy"}, ["x: y"], ["a.service", "b.service"]) == (
        "busy; x: y; stopped for it, and not to be started again: a.service, b.service (systemctl status says why)"
    )


@pytest.mark.install
def test_a_service_that_does_not_start_and_modules_that_do_not_load_hide_nothing(tmp_path: Path) -> None:
    here.moved(tmp_path, "/run/gpuprov")
    stopped = tmp_path / "run/gpuprov/stopped"
    stopped.mkdir(parents=True)
    for name in ("good.service", "bad.service"):
        (stopped / name).touch()
    (tmp_path / "run/gpuprov/unloaded").write_text("nvidia\n")
    here.program(tmp_path, "modprobe", "echo 'modprobe: ERROR: No such device' >&2; exit 1")
    here.program(tmp_path, "systemctl", f'case "$3" in bad*) exit 1 ;; esac; echo "$*" >> {tmp_path}/log')
    here.program(tmp_path, "step", "echo 'no {{ such }} thing' >&2; exit 1")
    given = {"failure": "{{ ansible_failed_result }}", "services": ["bad.service", "good.service"], "driver": True}
    step = {
        "block": [{"ansible.builtin.command": {"argv": ["step"]}}],
        "rescue": [{"gpuprov_step": {"name": "give_up", "arguments": given}}],
    }
    done = here.play(tmp_path, {"tasks": [step]})
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 2, said
    assert (
        "no {{ such }} thing; the old driver was not loaded again: modprobe -a nvidia: modprobe: ERROR: No such "
        "device; " in said
    )
    assert "stopped for it, and not to be started again: bad.service (systemctl status says why)" in said
    assert "start -- good.service" in (tmp_path / "log").read_text()
    assert [path.name for path in stopped.iterdir()] == ["bad.service"]


@pytest.mark.install
def test_a_step_whose_program_was_killed_is_told_as_such(tmp_path: Path) -> None:
    here.moved(tmp_path, "/run/gpuprov")
    here.program(tmp_path, "step", "kill -KILL $PPID")
    given = {"failure": "{{ ansible_failed_result }}", "services": []}
    step = {
        "block": [{"ansible.builtin.command": {"argv": ["step"]}}],
        "rescue": [{"gpuprov_step": {"name": "give_up", "arguments": given}}],
    }
    done = here.play(tmp_path, {"tasks": [step]})
    said = " ".join((done.stdout + done.stderr).split()).rpartition("TASK [gpuprov_step]")[2]
    assert "SIGKILL" in said
    assert "deserialization" not in said
