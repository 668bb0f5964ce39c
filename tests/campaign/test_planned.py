"""What a campaign does of its plan: each class, also in upgrades; what has ended is not done again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.campaign import classes, outside, table
from tests.campaign.__main__ import crowded, left, planned
from tests.campaign.group import NOT_GREEN, failures

SECONDS = {"small": 10.0, "upgrade": 40.0}


def test_three_hundred_runs_have_each_class_and_each_host_s_class_in_an_upgrade() -> None:
    runs = [run for group, _ in planned(300, "7", SECONDS) for run in group]
    assert [run.number for run in runs] == list(range(300))
    assert len({run.fault.kind for run in runs}) == len(classes.HOSTS) + len(classes.CONTROLLERS) + 1
    upgrades = {run.fault.kind for run in runs if run.spec == "upgrade"}
    assert len([kind for kind in upgrades if not kind.startswith(("apply ", "two "))]) == len(classes.HOSTS)


def test_what_has_ended_is_not_done_again() -> None:
    whole = list(planned(40, "7", SECONDS))
    numbers = {run.number for group, _ in whole for run in group}
    rows: list[dict[str, Any]] = [
        {"seed": "7", "number": run.number, "kind": run.fault.kind, "spec": run.spec}
        for group, _ in whole[:4]
        for run in group[1:]
    ]
    ended = {row["number"] for row in rows}
    elsewhere = [{**row, "seed": "8"} for row in rows] + [{**rows[0], "kind": "another", "number": 39}]
    again = left(whole, "7", rows + elsewhere)
    assert {run.number for group, _ in again for run in group} == numbers - ended
    assert [way for _, way in again if way] == [way for _, way in whole if way]
    (one,) = left(whole, "7", rows, only=min(ended))
    assert [run.number for run in one[0]] == [min(ended)], "one that is asked for is done again"


def test_of_a_run_that_was_done_again_the_last_counts(tmp_path: Path) -> None:
    rows = [{"seed": "7", "number": number, "broken": broken} for number, broken in ((1, ["x"]), (2, []), (1, []))]
    file = tmp_path / "runs.jsonl"
    assert table.read(file) == []
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert sorted((row["number"], row["broken"]) for row in table.read(file)) == [(1, []), (2, [])]


def test_a_host_that_is_red_is_told_from_one_that_waits() -> None:
    told = (
        "a1: changed (2 tasks in 9 s), verify is not green\n  fail x\nb[1:2]: unchanged, verify is green\nc1: "
        "failed: x\n"
    )
    assert [bool(failures(told, name, NOT_GREEN)) for name in ("a1", "b1", "c1")] == [True, False, True]
    assert [bool(failures(told, name)) for name in ("a1", "b1", "c1")] == [False, False, True]


def test_what_a_host_keeps_to_go_back_to_is_no_change() -> None:
    before, now = "/etc/a 1 1\n", "/etc/a 1 2\n/var/lib/gpuprov/packages/a.deb 1 1\n"
    assert outside.differences(before, now, without=("/var/lib/gpuprov/packages/",)) == ["- /etc/a 1 1", "+ /etc/a 1 2"]


def test_groups_that_do_not_fit_on_the_machine_are_told_with_the_fix() -> None:
    assert not crowded(1, 128)
    assert "sysctl -w fs.inotify.max_user_instances=336" in crowded(3, 128)
    assert not crowded(3, 336)
