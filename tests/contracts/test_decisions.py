"""Roles and playbooks decide nothing: Python does, once, and they test whether it has given them something.

A condition tests a value from Python, or the result of an earlier task: whether it exists, is empty or changed. An
expression names a value, or its default. All exceptions are listed below, each with its reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.rows import run_each

ROOT = Path(__file__).parents[2]
FILES = sorted([*(ROOT / "roles").glob("*/tasks/**/*.yml"), *(ROOT / "playbooks").rglob("*.yml")])
SETTINGS = sorted((ROOT / "roles").glob("*/[vd][ae][rf]*/main.yml"))
BRANCHES = ("block", "rescue", "always", "tasks")
JUDGES = {f"ansible.builtin.{name}" for name in ("assert", "fail", "set_fact")}
PROGRAMS = {f"ansible.builtin.{name}" for name in ("command", "shell", "raw", "script")}

NAME = r"[A-Za-z_]\w*(?:\.\w+)*"
CLAUSE = re.compile(
    rf"(?:not )?(?:{NAME}|'\w+' in {NAME}|{NAME} is (?:not )?(?:none|defined|changed)"
    rf"|\(?{NAME}(?: \+ {NAME})*\)?(?: \| length > 0| != (?:''|\[\]|\{{\}}))|{NAME} == ''"
    rf"|{NAME} \| default\(''\) is truthy)"
)
VALUE = re.compile(
    rf"(?:{NAME}|\({NAME} \| default\({NAME}\)\)\.\w+)(?: \| default\((?:''|\[\]|\{{\}}|omit|{NAME}|\d+)\))?(?: \| "
    r"int)?"
)

MAY: dict[str, str] = {
    "host_capabilities | intersect(gpuprov_catalog.packaged) | length > 0": "which capabilities a run has is known "
                                                                            "to the run alone",
    "gpuprov_drain_command | default('', true) == ''": "an option of the run",
    "gpuprov_drain_command | default('', true) != ''": "an option of the run",
    "gpuprov_act_last | default('') == 'prepare'": "an option of the run",
    "gpuprov_act_last | default('') == 'bake'": "an option of the run",
    "gpuprov_on_failure | default('nothing') == 'rollback'": "the word of the spec",
    "gpuprov_reboot == 'if-needed'": "the word of the spec as the module takes it",
    "'all' if groups.all else 'localhost'": "Ansible plays over no hosts, and calls that a success",
    "[host_role] | select('in', gpuprov_capabilities)": "a role that is applied by itself, if the spec has it",
    "(host_lock | default({})).run | default({})": "a role takes the lock of the role before it again",
    "gpuprov_act | int > 1": "each play's own number",
    "not (ansible_check_mode and __nvidia_driver_folder is changed)": "check mode has not made the folder that copy "
                                                                      "needs",
    "not (ansible_check_mode and __vgpu_guest_folder is changed)": "check mode has not made the folder that copy needs",
    "now(utc=true).timestamp() | int": "the clock",
    "[gpuprov_most | int - (gpuprov_now | int - host_began | default(gpuprov_now) | int), "
    "[60, gpuprov_most | int] | min] | max":
        "what is left of the act's time, which Ansible asks for as each task begins",
    "host_kubernetes_node or inventory_hostname": "the default of a variable that a site sets",
    "__host_reasons.reasons | join('; ')": "what the host's users read as it goes down",
    "(host_lock.guard ~ ' --reboot shutdown -r 0 ' ~ (__host_reasons.reasons | join('; ') | quote)) "
    "if host_lock.guard is defined else omit":
        "the reboot goes through the lock's guard: the action is Ansible's, and takes a command line",
    "(((gpuprov_judged | default({})).desired | default({})).nvidia_driver | default({})).leaving | default([])":
        "a default of modules, also before anything is judged",
    "(gpuprov_judged | default({})).driver | default({})": "the same",
    "gpuprov_all | select('in', (gpuprov_only | default({}))[inventory_hostname] | default(gpuprov_all)) "
    "| select('in', gpuprov_selected | default(gpuprov_all))": "the options of the run and of its playbook",
    "(gpuprov_pruned | default({}))[inventory_hostname] | default({})": "what gpuprov has found on this host",
    "(gpuprov_run | default({})).run | default('by-hand')": "a run by hand has no number",
    "host_lock.run | default(gpuprov_run | default({}))": "a second playbook of a run takes the lock of the first again",
    "host_failed.msg | default('the act failed')": "what Ansible caught may have no message",
}  # fmt: skip
FACTS = {
    "roles/host/tasks/failed.yml": "Ansible forgets why a block failed once another task has run",
    "playbooks/site.yml": "the Python that answers, the lock's guard, and when the act began: Ansible itself has to "
    "know them",
    "roles/host/tasks/drain_users.yml": "a drain may take days, which are not the act's",
    "roles/host/tasks/reboot_once.yml": "a reboot has a time limit of its own",
}


def tasks(node: object) -> Iterator[dict[str, Any]]:
    """Yield all tasks and plays of a file, including those in blocks."""
    for one in node if isinstance(node, list) else ():
        yield one
        for branch in BRANCHES:
            yield from tasks(one.get(branch))


def read(path: Path) -> Any:
    return yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)


def expressions(node: object) -> Iterator[str]:
    """Yield the contents of Jinja's braces, on one line."""
    if isinstance(node, dict):
        node = [*node.keys(), *node.values()]
    if isinstance(node, list):
        for part in node:
            yield from expressions(part)
    elif isinstance(node, str):
        yield from (" ".join(found.split()) for found in re.findall(r"\{\{(.*?)\}\}(?!\})", node, re.S))


def clauses(task: dict[str, Any]) -> Iterator[str]:
    for word in ("when", "until", "changed_when", "failed_when"):
        given = task.get(word, [])
        for condition in given if isinstance(given, list) else [given]:
            text = " ".join(str(condition).split())
            yield from (text,) if text in MAY else re.split(r" (?:and|or) ", text)


def decided(text: str) -> list[str]:
    """List the decisions in a file: each condition, expression and task that breaks the rule."""
    found: list[str] = []
    node = yaml.safe_load(text) or []
    for task in tasks(node):
        found += [one for one in clauses(task) if not (CLAUSE.fullmatch(one) or one in MAY or one in ("True", "False"))]
        found += [name for name in task if name in PROGRAMS]
    found += [one for one in expressions(node) if not (VALUE.fullmatch(one) or one in MAY)]
    return found + re.findall(r"\{%.*?%\}", text, re.S)


@run_each("path", [*FILES, *SETTINGS], ids=lambda path: str(path.relative_to(ROOT)))
def test_it_decides_nothing(path: Path) -> None:
    assert decided(path.read_text(encoding="utf-8")) == [], (
        "let Python work it out: `desired` of the capability, or a module"
    )


def test_only_these_set_facts_or_fail() -> None:
    found = {str(path.relative_to(ROOT)) for path in FILES for task in tasks(read(path)) if JUDGES & task.keys()}
    assert found == set(FACTS)


def test_each_exception_is_needed() -> None:
    used = {one for path in (*FILES, *SETTINGS) for one in expressions(read(path))}
    used |= {one for path in FILES for task in tasks(read(path)) for one in clauses(task)}
    assert set(MAY) - used == set()


@run_each(
    "text",
    [
        "- {name: x, debug: {}, when: rdma_stack == 'doca-ofed'}",
        "- {name: x, debug: {}, when: [a.b | regex_search('c')]}",
        "- {name: x, debug: {}, failed_when: \"'no such unit' not in x.stderr\"}",
        "- {name: x, debug: {msg: \"{{ a | regex_replace('b', 'c') }}\"}}",
        '- {name: x, debug: {msg: "{{ a if b else c }}"}}',
        '- {name: x, debug: {msg: "{% if a %}{{ b }}{% endif %}"}}',
        "- {name: x, block: [{name: y, ansible.builtin.shell: grep x /etc/y}]}",
    ],
)
def test_what_decides_is_found(text: str) -> None:
    assert decided(text)
