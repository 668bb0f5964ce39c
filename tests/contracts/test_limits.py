"""Every act of the playbook has a time limit on each host, and what it starts can be found."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuprov.core.time_limits import ACT_LIMIT
from tests.here import play

ROOT = Path(__file__).parents[2]
PLAYS: list[dict[str, Any]] = yaml.safe_load((ROOT / "playbooks" / "site.yml").read_text())
"""The play that reaches the hosts, the acts by number, and the play that refuses an inventory without hosts."""
QUICK = {"ansible.builtin.meta", "ansible.builtin.set_fact", "ansible.builtin.fail", "gpuprov_spec"}
"""Actions that run on this machine only."""


def test_whatever_talks_to_a_host_stands_under_the_limit_of_its_act() -> None:
    for one in PLAYS:
        for task in one["tasks"]:
            assert QUICK & set(task) or task.get("timeout") == "{{ gpuprov_left }}", task["name"]


def test_what_changes_a_host_can_be_found_there() -> None:
    for number in (1, 2, 4):
        block = next(task for task in PLAYS[number]["tasks"] if "rescue" in task)
        assert block["environment"] == {"GPUPROV_RUN": "{{ gpuprov_mark }}"}


def test_the_default_is_that_of_the_commands() -> None:
    assert f"gpuprov_act_limit | default({ACT_LIMIT})" in PLAYS[0]["vars"]["gpuprov_most"]


def act(*tasks: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A play with the variables of the playbook's own, and its first task of an act."""
    begin = next(task for task in PLAYS[2]["tasks"] if "run_once" in task)
    block = next(task for task in PLAYS[2]["tasks"] if "block" in task)
    kept = {key: block[key] for key in ("timeout", "environment")}
    return {"vars": PLAYS[2]["vars"], "tasks": [begin, {**kept, "block": list(tasks), **more}]}


@pytest.mark.install
def test_a_task_that_hangs_is_ended_and_what_follows_a_failure_is_done(tmp_path: Path) -> None:
    """The other host of the batch goes on; tasks before it take of the time, too."""
    hang = "{{ 60 if inventory_hostname == 'gpu1' else 0.1 }}"
    tasks = [
        {"name": "First", "ansible.builtin.command": "sleep 1"},
        {"name": "Hang", "ansible.builtin.command": f"sleep {hang}"},
        {"name": "Next", "ansible.builtin.shell": "[ $GPUPROV_RUN = 11a17500 ]"},
    ]
    after = [{"name": "After", "ansible.builtin.command": "sleep 0.1"}]
    extra = {"gpuprov_act_limit": 8, "gpuprov_run": {"run": "11a17500"}}
    started = time.monotonic()
    done = play(tmp_path, act(*tasks, always=after), inventory="gpu1,gpu2,", extra=extra)
    assert time.monotonic() - started < 40
    assert "Timed out after " in done.stdout, done.stdout + done.stderr
    assert "changed: [gpu1]" in done.stdout.partition("TASK [After]")[2]
    assert "gpu2                       : ok=4" in done.stdout
