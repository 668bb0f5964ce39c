"""When the role lets a layout come into force for the next boot, and what it hands to the program."""

from __future__ import annotations

from typing import Any

from gpuprov import assets
from tests.contracts.test_failures import load

ROLE = assets.root() / "roles" / "mig"
KEEP = "service/keep.yml"


def flat(tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Tasks and those of their blocks, without rescues."""
    return [one for task in tasks for one in (flat(task["block"]) if "block" in task else [task])]


def place(tasks: list[dict[str, Any]], included: str) -> int:
    """Where these tasks include a file."""
    return next(n for n, task in enumerate(tasks) if task.get("ansible.builtin.include_tasks") == included)


def test_a_layout_is_written_down_in_one_place() -> None:
    writing = [
        path.name
        for path in sorted((ROLE / "tasks").rglob("*.yml"))
        if 'dest: "{{ __mig_desired }}"' in path.read_text()
    ]
    assert writing == ["keep.yml"]
    for act in ("assert", "install", "configure"):
        assert "keep.yml" not in (ROLE / "tasks" / f"{act}.yml").read_text()


def test_a_layout_that_is_refused_is_not_what_the_next_boot_makes() -> None:
    """It is kept after the refusal and after the change, in the block whose rescue ends the act."""
    tasks = load(ROLE / "tasks/service.yml")
    refusal = next(n for n, task in enumerate(tasks) if "ansible.builtin.assert" in task)
    done = next(task for task in tasks if "rescue" in task)
    assert refusal < tasks.index(done)
    assert place(done["block"], "service/change.yml") < place(done["block"], KEEP)
    later = next(task for task in tasks[:refusal] if "block" in task)
    assert "not __mig_plan.driver" in later["when"]
    names = [task.get("ansible.builtin.include_tasks") for task in flat(tasks)]
    assert names.count(KEEP) == 2
    assert place(later["block"], KEEP) == 0


def test_the_program_gets_the_layout_that_is_not_kept_yet() -> None:
    change = load(ROLE / "tasks/service/change.yml")
    applies = next(task for task in change if "'apply'" in str(task.get("ansible.builtin.command")))
    assert "--wanted=/dev/stdin" in applies["ansible.builtin.command"]["argv"]
    assert applies["ansible.builtin.command"]["stdin"] == "{{ __mig_wanted | to_json }}"
    kept = change[place(change, KEEP)]
    assert kept["when"] == "__answer.reboot | default(false)"
    assert change.index(applies) < change.index(kept)


def test_a_boot_without_a_layout_is_no_failure() -> None:
    unit = (ROLE / "templates/etc/systemd/system/gpuprov-mig.service.j2").read_text(encoding="utf-8")
    assert "\nConditionPathExists={{ __mig_desired }}\n" in unit


def test_check_mode_says_that_the_file_is_written_and_the_unit_started() -> None:
    done = next(task for task in load(ROLE / "tasks/service.yml") if "rescue" in task)
    assert "when" not in done
    guarded = [task["name"] for task in done["block"] if str(task.get("when", "")).startswith("not ansible_check_mode")]
    assert [task["name"] for task in done["block"] if task["name"] not in guarded] == [
        "Keep it for each boot, now that it is so",
        "Start the unit, which finds all as it is wanted",
    ]
