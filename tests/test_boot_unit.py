"""A boot unit sets what differs, a plan says what that is, and a failure is told. systemd is a stand-in."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.here import ROLES, play, program

pytestmark = pytest.mark.install

SYSTEMCTL = """\
case $1 in
show) cat "$STATE/state" ;;
restart) echo "$2" >> "$STATE/restarted"; exit "$(cat "$STATE/status")" ;;
esac
"""
JOURNAL = """\
roce: port 1: pfc is none, asked for is 3
roce: mlx5_0 port 1 is not as asked for
gpuprov-roce.service: Main process exited
"""


def run(
    folder: Path, differs: str, state: str, *, status: int = 0, check: bool = False, journal: str = JOURNAL
) -> tuple[str, int, bool]:
    """What was said, the exit status, and whether the unit was run."""
    program(folder, "systemctl", SYSTEMCTL)
    program(
        folder, "journalctl", f"[ $1 != --sync ] || exit\necho \"$*\" >> $STATE/asked\ncat << 'END'\n{journal}END\n"
    )
    (folder / "state").write_text(f"{state}\n")
    (folder / "status").write_text(f"{status}\n")
    given = {
        "host_boot_unit": "gpuprov-roce.service",
        "host_boot_unit_program": "roce",
        "host_boot_unit_differs": differs,
        "host_boot_unit_way_out": "mend what it says and apply again",
    }
    task = {"ansible.builtin.include_role": {"name": "host", "tasks_from": "boot_unit"}, "vars": given}
    done = play(folder, {"tasks": [task]}, check=check)
    return " ".join((done.stdout + done.stderr).split()), done.returncode, (folder / "restarted").exists()


def test_nothing_is_done_where_nothing_differs(tmp_path: Path) -> None:
    told, status, ran = run(tmp_path, "", "active")
    assert (status, ran) == (0, False), told
    assert "changed=0" in told


@pytest.mark.parametrize(("differs", "state"), [("pfc: none -> 3", "active"), ("", "failed")])
def test_it_runs_where_something_differs_or_it_did_not_run(tmp_path: Path, differs: str, state: str) -> None:
    told, status, ran = run(tmp_path, differs, state)
    assert (status, ran) == (0, True), told
    assert "changed=1" in told


@pytest.mark.parametrize(
    ("differs", "state", "said"),
    [
        ("pfc: none -> 3", "active", "would set pfc: none -> 3"),
        ("", "failed", "would run gpuprov-roce.service, which is failed"),
    ],
)
def test_a_plan_says_what_apply_runs(tmp_path: Path, differs: str, state: str, said: str) -> None:
    told, status, ran = run(tmp_path, differs, state, check=True)
    assert (status, ran) == (0, False), told
    assert said in told
    assert "changed=1" in told


def test_a_plan_of_nothing_says_nothing(tmp_path: Path) -> None:
    told, status, _ = run(tmp_path, "", "active", check=True)
    assert status == 0, told
    assert "msg" not in told
    assert "changed=0" in told


def test_a_unit_that_fails_is_told_with_what_its_program_said_last(tmp_path: Path) -> None:
    told, status, ran = run(tmp_path, "pfc: none -> 3", "active", status=1)
    assert (status, ran) == (2, True), told
    assert "gpuprov-roce.service failed on gpu1: roce: mlx5_0 port 1 is not as asked for. Way out: mend" in told


def test_a_unit_that_was_ended_is_not_told_with_what_it_said_another_time(tmp_path: Path) -> None:
    """A unit that ran out of time leaves no line of its own: that of an earlier run, for another reason, would mislead."""
    ended = "gpuprov-roce.service: start operation timed out. Terminating.\ngpuprov-roce.service: Failed with result 'timeout'.\n"
    told, status, _ = run(tmp_path, "pfc: none -> 3", "active", status=1, journal=ended)
    assert status == 2, told
    assert (
        "failed on gpu1: gpuprov-roce.service: start operation timed out. Terminating.; gpuprov-roce.service: Failed"
        in told
    )
    assert " --since @" in (tmp_path / "asked").read_text()


def test_what_roce_differs_in_is_said_for_people(tmp_path: Path) -> None:
    """The program's rows are for programs: device|port|netdev|PCI address|setting|has|shall have."""
    role = yaml.safe_load((ROLES / "rdma/tasks/service/roce/set.yml").read_text(encoding="utf-8"))
    said = next(task["vars"] for task in role if "vars" in task)["host_boot_unit_differs"]
    given = {"__rdma_roce_rows": ["mlx5_0|1|eth1|0000:18:00.0|pfc|none|3", "mlx5_1|1|eth2|0000:2a:00.0|tos|0|106"]}
    done = play(tmp_path, {"vars": given, "tasks": [{"ansible.builtin.debug": {"msg": f"({said})"}}]})
    assert "(mlx5_0 port 1 pfc: none -> 3; mlx5_1 port 1 tos: 0 -> 106)" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("governor", "said"), [("performance", "would set the governor performance of 1 policies"), ("powersave", "")]
)
def test_the_governor_is_set_by_the_same_protocol(tmp_path: Path, governor: str, said: str) -> None:
    role = yaml.safe_load((ROLES / "kernel/tasks/service/governor.yml").read_text(encoding="utf-8"))
    task = next(task for task in role if "ansible.builtin.include_role" in task)
    program(tmp_path, "systemctl", "echo active")
    known = yaml.safe_load((ROLES / "kernel/vars/main.yml").read_text(encoding="utf-8"))
    given = {
        "kernel_cpu_governor": governor,
        "__kernel_governors_differ": known["__kernel_governors_differ"],
        "__kernel_governor_unit": "gpuprov-cpu-governor.service",
        "__kernel_governors_now": {
            "stdout_lines": ["policy0 powersave performance powersave", f"policy1 {governor} performance powersave"]
        },
    }
    done = play(tmp_path, {"vars": given, "tasks": [task]}, check=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (f'"msg": "{said}"' in done.stdout) if said else "msg" not in done.stdout, done.stdout
