"""Task files made of declared tasks: one way for each relation between tasks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import yaml

from gpuprov.capabilities import BY_NAME
from gpuprov.capabilities.tasks import (
    Block,
    Part,
    Stages,
    Task,
    files,
    free_gpus,
    judge,
    packages,
    report,
    start_clients,
    step,
    stop_clients,
    taken,
    unit,
)
from gpuprov.render.checkout import acts_of
from gpuprov.render.role_tasks import stage_files
from tests.rows import run_each


def rendered(stages: Stages) -> dict[str, Any]:
    """Return the files of a role whose capability declares these tasks, parsed."""
    made = stage_files(replace(BY_NAME["mig"], tasks=stages))
    return {path: yaml.safe_load(text) for path, text in made.items()}


STEP, ENTRIES = "gpuprov_step", "gpuprov_judged.desired.mig.tasks"
ROWS: list[tuple[str, Task, dict[str, Any]]] = [
    ("a step by its own name", step("x", "cdi"), {STEP: {"name": "cdi", "capability": "mig"}}),
    ("by another", step("x", "cdi", "late"), {STEP: {"name": "cdi", "capability": "mig", "task": "late"}}),
    (
        "with what every host gets",
        step("x", "mps", arguments={"state": "running"}),
        {STEP: {"name": "mps", "capability": "mig", "arguments": {"state": "running"}}},
    ),
    ("a unit", unit("x"), {"gpuprov_unit": {"capability": "mig"}}),
    ("one of several", unit("x", "a"), {"gpuprov_unit": {"capability": "mig", "task": "a"}}),
    (
        "each of a list",
        unit("x", each="name"),
        {
            "gpuprov_unit": {"capability": "mig"},
            "loop": f"{{{{ {ENTRIES}.unit | default([]) }}}}",
            "loop_control": {"label": "{{ item.name }}"},
        },
    ),
    ("packages", packages("x", "try"), {"gpuprov_packages": {"action": "try", "capability": "mig"}}),
    ("those of a part", packages("x", part="a"), {"gpuprov_packages": {"capability": "mig.a"}}),
    ("files, unseen", files("x", shows=False), {"gpuprov_files": {"capability": "mig"}, "diff": False}),
    (
        "a judgement",
        judge("x", "now"),
        {"gpuprov_judge": {"capabilities": ["mig"], "moment": "now"}, "register": "gpuprov_judged"},
    ),
    (
        "a message",
        report("x", "a"),
        {"ansible.builtin.debug": {"msg": f"{{{{ {ENTRIES}.a.msg }}}}"}, "when": f"'a' in {ENTRIES}"},
    ),
    (
        "not in check mode",
        stop_clients("x", checks=False),
        {
            "ansible.builtin.include_role": {"name": "host", "tasks_from": "stop_clients"},
            "when": [f"'stop' in {ENTRIES}", "not ansible_check_mode"],
        },
    ),
    (
        "a start without conditions",
        start_clients("x"),
        {STEP: {"name": "clients", "arguments": {"state": "started", "services": "{{ gpuprov_services }}"}}},
    ),
    (
        "what a later task needs",
        step("x", "fetch", prepares="once"),
        {
            STEP: {"name": "fetch", "capability": "mig"},
            "register": "__mig_fetch",
            "changed_when": "__mig_fetch is changed and ansible_check_mode",
        },
    ),
    (
        "a secret",
        Task(title="x", module="ansible.builtin.copy", options=taken("src"), key="a", secret=True),
        {
            "ansible.builtin.copy": {"src": f"{{{{ {ENTRIES}.a.src }}}}"},
            "no_log": True,
            "diff": False,
            "when": f"'a' in {ENTRIES}",
        },
    ),
]


@run_each(("task", "expected"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_a_task_is_rendered(task: Task, expected: dict[str, Any]) -> None:
    assert rendered({"service": (task,)}) == {"service": [{"name": "x", **expected}]}


def test_an_answer_reaches_the_tasks_that_name_it() -> None:
    first, second, third = (
        step("a", "engines"),
        free_gpus("b", only_if="engines.restart"),
        step("c", "boot", takes={"written": "engines.paths"}, unless="engines.later"),
    )
    made = rendered({"configure": (first,), "service": (second, third)})
    assert made["configure"][0]["register"] == "__mig_engines", "also in another stage"
    drained, taking = made["service"]
    assert drained["when"] == "__mig_engines.restart | default('') is truthy"
    assert taking[STEP]["arguments"] == {"written": "{{ __mig_engines.paths | default(omit) }}"}
    assert taking["when"] == "__mig_engines.later is not defined or __mig_engines.later == ''"
    assert "register" not in taking


def test_a_block_gives_up_and_a_part_is_a_file_of_its_own() -> None:
    inner = Part(title="c", file="deep", tasks=(step("d", "cdi"),), key="deep")
    made = rendered(
        {
            "service": (
                Block(title="a", tasks=(unit("b"),), key="unit"),
                Part(title="p", file="part", tasks=(inner,), key="part"),
            )
        }
    )
    block, part = made["service"]
    assert block["when"] == f"'unit' in {ENTRIES}"
    assert [task["name"] for task in block["block"]] == ["b"]
    (undo,) = block["rescue"]
    assert undo[STEP]["arguments"] == {"failure": "{{ ansible_failed_result }}", "services": "{{ gpuprov_services }}"}
    assert part == {
        "name": "p",
        "ansible.builtin.include_tasks": "service/part.yml",
        "when": f"'part' in {ENTRIES}",
    }
    assert made["service/part"][0]["ansible.builtin.include_tasks"] == "service/deep.yml"
    assert made["service/deep"] == [{"name": "d", STEP: {"name": "cdi", "capability": "mig"}}]


def test_a_comment_stands_before_its_task() -> None:
    made = stage_files(replace(BY_NAME["mig"], tasks={"boot": (step("x", "boot", why="Because."),)}))
    assert made["boot"].startswith("# Because.\n- name: x\n")


@run_each(("names", "judges"), [(["readings"], False), (["nvidia_driver", "readings"], True)])
def test_a_host_is_judged_again_only_after_an_installation(names: list[str], judges: bool) -> None:
    assert ("gpuprov_judge:" in acts_of([names])["acts/install.yml"]) is judges
